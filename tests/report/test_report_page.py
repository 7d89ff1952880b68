"""The page: self-contained, the same each time, and sound for odd studies."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from report_synthetic import make_study, never, write_everything

from collapse_laws.cli import main
from collapse_laws.laws.published import load_published, write_published
from collapse_laws.report import page
from collapse_laws.results import load_results
from collapse_laws.twins import table1_twin

VOID = {"meta", "link", "br", "img", "path", "use"}


class Outline(HTMLParser):
    """Collects tags, ids and addresses, and checks that tags close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        self.scripts += tag == "script"
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "src", "srcset", "action", "xlink:href"):
                self.addresses.append(value)

    def handle_startendtag(self, tag, attrs):
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def outline(html: str) -> Outline:
    parsed = Outline()
    parsed.feed(html)
    assert parsed.open == []
    assert len(parsed.ids) == len(set(parsed.ids))
    return parsed


def assert_self_contained(html: str) -> Outline:
    parsed = outline(html)
    for address in parsed.addresses:
        assert address.startswith(("#", "data:", "../../results/")), address
    assert not re.search(r"https?://", html)
    assert "@import" not in html
    assert len(html.encode()) < 5_000_000
    return parsed


def test_the_page_is_whole_and_asks_for_nothing(two_arms):
    html = (two_arms.parent / "reports/proxy/index.html").read_text()
    parsed = assert_self_contained(html)
    for section in (
        "verdict",
        "boundary",
        "clock",
        "curves",
        "controls",
        "mechanism",
        "provenance",
    ):
        assert section in parsed.ids
    assert "9 of 36 planned cells were not run" in html
    assert "CPU proxy" in html
    for address in parsed.addresses:
        if address.startswith("../../"):
            assert (two_arms.parent / "reports/proxy" / address).exists()


def test_the_same_results_give_the_same_page(two_arms):
    path = two_arms.parent / "reports/proxy/index.html"
    before = path.read_bytes()
    assert main(["report", "--params", str(two_arms)]) == 0
    assert path.read_bytes() == before


def test_hostile_names_are_text(two_arms):
    results = load_results(two_arms)
    hostile = "<script>alert(1)</script> $\\frac{x}$ \"' & {{ 7*7 }} \\input{/etc/passwd}"
    cells = results.cells.copy()
    cells["cell"] = hostile
    first = next(iter(results.outcomes.values()))
    changed = replace(
        results,
        title=hostile,
        cells=cells,
        arms={arm: hostile for arm in results.arms},
        outcomes={hostile: first},
        unplanned=(hostile,),
    )
    parsed = assert_self_contained(page(changed))
    assert parsed.scripts == 1


def test_a_hostile_title_goes_through_every_command(tmp_path):
    title = "<img src=x onerror=alert(1)> $\\alpha_{$ & 100% </style>"
    params = make_study(tmp_path, title=title, sync_intervals=(8, 16), rates=("2e-3", "4e-4"))
    text = params.read_text()
    first = "recomputed ratio (1 at one step a batch)"
    assert first in text
    params.write_text(text.replace(first, "$x_{</svg><script>"))
    html = write_everything(params).read_text()
    assert assert_self_contained(html).scripts == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"onset": never}, "No run collapsed"),
        ({"sync_intervals": (8,), "rates": ("2e-3",)}, "All 1 planned cells were run"),
        ({"records": False}, "no run record"),
        ({"without": lambda cell: cell.sync_interval == 8}, "3 of 6 planned cells were not run"),
        ({"without": lambda cell: True}, "There is no outcome yet"),
    ],
    ids=["all-stable", "one-cell", "no-records", "missing-record", "nothing-run"],
)
def test_odd_studies_give_a_sound_page(tmp_path, options, says):
    html = write_everything(make_study(tmp_path, **options)).read_text()
    assert_self_contained(html)
    assert says.lower() in html.lower()


def test_a_page_before_figures_and_laws_says_so(tmp_path):
    params = make_study(tmp_path, sync_intervals=(8,), rates=("2e-3",))
    (tmp_path / "results/proxy/laws.json").unlink()
    assert main(["report", "--params", str(params)]) == 0
    html = (tmp_path / "reports/proxy/index.html").read_text()
    assert_self_contained(html)
    assert "has not been drawn yet" in html
    assert "Nothing has been fitted" in html


def test_the_published_tables_alone_make_a_page(tmp_path):
    params = make_study(tmp_path, sync_intervals=(8,), rates=("2e-3",))
    assert main(["tables", "--params", str(params), "--study", "published"]) == 2
    write_published(load_published(), tmp_path)
    html = write_everything(params, "published").read_text()
    assert_self_contained(html)
    assert "paper scale" in html
    assert "No run of this study" not in html
    assert {p.stem for p in (tmp_path / "results/published/figures").glob("*.svg")} == {
        "boundary", "clock",
    }  # fmt: skip
    assert "(2.88e-5, 3.2e-5]" in html
    table = (tmp_path / "results/published/table1.csv").read_text()
    assert "vanilla_llama3b_S32_eta1e-7_seed42" in table
    # the proxy's page sets the paper's sets beside its own, each labelled
    html = write_everything(params).read_text()
    assert "paper, as published" in html


def test_a_study_at_paper_scale_is_compared_run_by_run(tmp_path):
    params = make_study(
        tmp_path,
        models=("llama3b",),
        arms=("vanilla",),
        sync_intervals=(32,),
        rates=("1e-6", "2e-7"),
        seeds=(42,),
        without=lambda cell: True,
    )
    params.write_text(params.read_text().replace("scale: proxy", "scale: paper"))
    write_published(load_published(), tmp_path)
    twin = table1_twin(load_results(params)).display
    assert len(twin) == 48
    assert set(twin["mark"]) == {"- not run"}


@pytest.mark.slow
def test_five_hundred_cells_within_a_minute(tmp_path):
    rates = [f"{m}e-4" for m in range(2, 27)]
    params = make_study(tmp_path, sync_intervals=(8, 16, 32, 64, 128), rates=rates, seeds=(11, 12, 13, 14), stride=4)
    assert len(load_results(params).cells) == 500
    began = time.perf_counter()
    path = write_everything(params)
    assert time.perf_counter() - began < 60
    html = path.read_text()
    assert_self_contained(html)
    assert "configurations are drawn" in html
