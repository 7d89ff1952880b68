"""The one page of a study: verdict, figures, tables, configuration and provenance in a single file
that needs no network.

It is put together from what `tables` and `figures` wrote, and from outcomes and laws; nothing is
drawn or fitted here. Links to data are relative to the repository; small data also lie in the page.
No clock of this machine is read, so equal results give equal bytes.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from collapse_laws import __version__
from collapse_laws.configuration import table2
from collapse_laws.configuration_verl import composed_rows
from collapse_laws.evaluation_table import over_snapshots
from collapse_laws.figures import NOTES
from collapse_laws.figures.catalogue import CATALOGUE, FigureSpec, figure_names
from collapse_laws.figures.palette import dark_twins
from collapse_laws.render import TEMPLATES, environment, html_fragment, write_text
from collapse_laws.results import StudyResults, read_json
from collapse_laws.svg import inline, stylesheet
from collapse_laws.tables import Table, counts_table, runs_table, sensitivity_table, table1, table3
from collapse_laws.twins import table1_twin, table3_twin
from collapse_laws.verdict import LAWS, not_run_text, verdicts
from collapse_laws.wording import SCALES

EMBED_BYTES, EMBED_TOTAL = 60_000, 500_000  # data in the page: of one figure, of all
PICTURE_BYTES = 900_000  # a larger SVG is shown as its PNG
ROWS_FOLDED = 30
SECTIONS = {
    "verdict": ("Verdict", ""),
    "boundary": ("Boundary", "Where runs stop surviving. Law (i) asks for a line of slope -1."),
    "clock": (
        "Clock",
        "When collapsing runs collapse. Survivors are on another branch and left out.",
    ),
    "curves": ("Curves", "What each run did."),
    "controls": (
        "Controls",
        "Without staleness (S = 1) neither law speaks; these runs show what the rate does alone.",
    ),
    "mechanism": (
        "Mechanism",
        "Checks that the paper predicts but did not run, where the records hold them.",
    ),
    "sensitivity": (
        "Sensitivity",
        "The paper's criterion for a collapse is not in its text; the one used is declared.",
    ),
    "evaluation": ("Evaluation", "Scores of saved policies on held-out problems."),
    "configuration": ("Configuration", "Every knob, with what the paper says of it."),
    "provenance": (
        "Provenance",
        "What made each record. Equal settings digests mean equal settings.",
    ),
}
_PUBLISHED_SECTIONS = ("verdict", "boundary", "clock", "provenance")


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure as the page shows it."""

    name: str
    title: str
    caption: str
    picture: Markup
    empty: str | None
    notes: list[str]
    data: str
    data_name: str
    embedded: str | None
    digest: str
    command: str


def write_report(results: StudyResults) -> Path:
    """Write reports/<study>/index.html and return its path."""
    path = results.root / "reports" / results.name / "index.html"
    write_text(path, page(results))
    return path


def page(results: StudyResults) -> str:
    """The page's HTML."""
    names = _PUBLISHED_SECTIONS if results.published else tuple(SECTIONS)
    pictures = _pictures(results)
    tables = _tables(results)
    sections = [
        {
            "id": name,
            "title": SECTIONS[name][0],
            "text": SECTIONS[name][1],
            "figures": [p for p in pictures if _section(p.name) == name],
            "tables": tables.get(name, []),
        }
        for name in names
    ]
    html = environment().get_template("report.html.j2").render(
        results=results,
        version=__version__,
        scale=SCALES[results.scale],
        figure_css=Markup(stylesheet(dark_twins())),
        script=Markup((TEMPLATES / "hover.js").read_text(encoding="utf-8")),
        not_run=not_run_text(results),
        sections=sections,
        laws=LAWS,
        verdicts=verdicts(results),
        tables={
            "counts": html_fragment(counts_table(results)),
            "table1_twin": html_fragment(table1_twin(results)),
        },
        command=f"collapse-laws report --study {results.name}",
    )  # fmt: skip
    return re.sub(r"\n\s*\n+", "\n", html)


def _section(figure: str) -> str:
    return next(entry.section for entry in CATALOGUE if entry.name == figure)


def _tables(results: StudyResults) -> dict[str, list[dict]]:
    """Tables by section, long ones folded."""
    found = {
        "boundary": [table1(results)],
        "clock": [table3(results)],
        "provenance": [runs_table(results)],
    }  # fmt: skip
    if results.scale == "paper":
        found["clock"].append(table3_twin(results))
    if not results.published:
        found["configuration"] = [table2(results, composed_rows(results))]
        found["evaluation"] = _evaluations(results)
        found["sensitivity"] = [sensitivity_table(results)]
        found["provenance"].append(_left_out(results))
    return {
        section: [
            {
                "title": table.title,
                "html": html_fragment(table),
                "folded": len(table.display) > ROWS_FOLDED or table.name == "runs",
            }
            for table in tables
            if table is not None
        ]
        for section, tables in found.items()
    }


def _evaluations(results: StudyResults) -> list[Table]:
    from collapse_laws.evaluation_table import collect

    root, name = results.root, results.name
    found = collect(root / "evals" / name, root / "runs" / name, results.planned)
    if found.empty:
        return []
    frame = over_snapshots(found).astype(str)
    title = "Scores over learner updates"
    return [Table("scores", title, "Mean and 95% interval.", frame, frame)]


def _left_out(results: StudyResults) -> Table | None:
    """Cells without an outcome, and outcome files that no planned cell claims."""
    missing = results.cells[results.cells["label"] == "not_run"][["cell", "reason"]]
    rows = [*missing.itertuples(index=False, name=None)]
    rows += [(name, "An outcome that params.yaml plans no cell for; ignored.") for name in results.unplanned]
    if not rows:
        return None
    import pandas as pd

    frame = pd.DataFrame(rows, columns=["cell", "reason"])
    return Table("left_out", "Not in the analysis", "What the fits do not hold.", frame, frame)


def _pictures(results: StudyResults) -> list[Picture]:
    directory = results.directory / "figures"
    notes = read_json(directory / NOTES) or {}
    left = EMBED_TOTAL
    pictures = []
    for entry in CATALOGUE:
        if entry.name in figure_names(results.name):
            picture = _picture(results, directory, entry, notes.get(entry.name), left)
            left -= len(picture.embedded or "")
            pictures.append(picture)
    return pictures


def _picture(results: StudyResults, directory: Path, entry: FigureSpec, note: dict | None, left: int) -> Picture:
    command = f"collapse-laws figures --study {results.name} --only {entry.name}"
    svg, data = directory / f"{entry.name}.svg", directory / f"{entry.name}.csv"
    content = data.read_bytes() if data.exists() else b""
    empty = (note or {}).get("empty")
    if note is None or not svg.exists():
        empty = "This figure has not been drawn yet."
    embed = 0 < len(content) <= min(EMBED_BYTES, left * 3 // 4) and not empty
    coded = base64.b64encode(content).decode()
    return Picture(
        name=entry.name,
        title=entry.title,
        caption=entry.caption,
        picture=Markup("") if empty else _drawn(svg, entry),
        empty=empty,
        notes=(note or {}).get("notes", []),
        data=f"../../results/{results.name}/figures/{entry.name}.csv",
        data_name=f"{entry.name}.csv",
        embedded=f"data:text/csv;base64,{coded}" if embed else None,
        digest=hashlib.sha256(content).hexdigest()[:12] if content else "-",
        command=command,
    )


def _drawn(svg: Path, entry: FigureSpec) -> Markup:
    """The SVG inline; as a picture of pixels where it would make the page heavy."""
    text = svg.read_text(encoding="utf-8")
    if len(text) <= PICTURE_BYTES:
        return Markup(inline(text, entry.name, entry.title, dark_twins()))
    coded = base64.b64encode(svg.with_suffix(".png").read_bytes()).decode()
    image = Markup('<img alt="{}" src="data:image/png;base64,{}">')
    return image.format(entry.title, coded)
