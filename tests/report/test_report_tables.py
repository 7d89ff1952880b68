"""Tables of a study whose truth is known, and their twins."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pandas as pd
import pytest
from report_synthetic import ROOT, make_study

from collapse_laws.cli import main
from collapse_laws.configuration import config_rows, flatten, read_knobs, table2
from collapse_laws.render import latex_text, tex_text
from collapse_laws.results import load_results
from collapse_laws.study import load_params, load_study, study_names
from collapse_laws.tables import table1, table3
from collapse_laws.twins import run_mark, set_mark
from collapse_laws.verdict import macros, metrics, verdicts


def test_table1_dates_what_the_generator_planted(two_arms):
    tidy = table1(load_results(two_arms)).tidy.set_index("cell")
    row = tidy.loc["recomputed_tiny_S16_eta1e-3_seed11"]
    assert (row["label"], row["collapse_index"], row["collapse_step"]) == ("collapsed", 2, 32)
    assert (row["onset_low"], row["onset_high"]) == (16, 32)
    assert row["surrogate"].startswith("recomputed ratio")
    assert row["clip_low"] == 0.2
    assert tidy.loc["vanilla_tiny_S16_eta1e-3_seed11", "label"] == "survived"


def test_a_planned_cell_without_a_record_is_a_dash_and_not_dropped(two_arms):
    results = load_results(two_arms)
    table = table1(results)
    assert len(table.tidy) == len(results.planned) == 36
    row = table.display[(table.display["arm"] == "vanilla") & (table.display["seed"] == "12")]
    assert set(row.filter(like="lr ").to_numpy().ravel()) == {"-"}
    assert (table.tidy["label"] == "not_run").sum() == 9


def test_an_outcome_of_other_settings_counts_as_not_run(two_arms, tmp_path):
    params = make_study(tmp_path, sync_intervals=(8,), rates=("2e-3",))
    text = params.read_text()
    assert "group_size: 8" in text
    params.write_text(text.replace("group_size: 8", "group_size: 4"))
    cells = load_results(params).cells
    assert list(cells["label"]) == ["not_run"]
    assert "other settings" in cells["reason"].iloc[0]


def test_table3_says_whether_seeds_agree(two_arms):
    display = table3(load_results(two_arms)).display
    recomputed = display[display["arm"] == "recomputed"]
    assert (recomputed["seeds agree"] == "yes (2)").all()
    assert (display[display["arm"] == "vanilla"]["seeds agree"] == "-").all()


def test_dagger_stands_exactly_where_the_value_is_the_default(two_arms):
    rows = {row.key: row for row in config_rows(load_results(two_arms))}
    assert rows["advantage_eps"].dagger
    assert rows["clip_low"].dagger
    assert not rows["group_size"].dagger
    assert not rows["dtype"].dagger
    assert rows["lr"].value == "4e-4, 1e-3, 2e-3"
    assert rows["ratio"].value == "recomputed (recomputed); behaviour (vanilla)"
    table = table2(load_results(two_arms))
    assert "1e-6†" in set(table.display["value"])


def test_every_knob_of_params_has_a_line():
    params = load_params(ROOT / "params.yaml")
    keys = {
        key
        for name in study_names(params)
        for cell in load_study(params, name).planned
        for key in flatten(cell.settings)
    }
    assert keys - set(read_knobs(ROOT)) - {"trainer"} == set()


def _run(label, index=None, interval=8):
    high = None if index is None else index * interval
    low = None if index is None else high - interval
    return pd.Series({"label": label, "collapse_index": index, "onset_low": low, "onset_high": high})


@pytest.mark.parametrize(
    ("paper", "own", "mark"),
    [
        (_run("collapsed", 4), _run("collapsed", 4), "="),
        (_run("collapsed", 4), _run("collapsed", 5), "x"),
        (_run("collapsed", 2, 16), _run("collapsed", 4, 8), "~"),
        (_run("survived"), _run("survived"), "="),
        (_run("survived"), _run("collapsed", 4), "x"),
        (_run("survived"), _run("oscillating"), "x"),
        (_run("collapsed", 4), _run("undecided"), "?"),
        (_run("collapsed", 4), _run("failed"), "?"),
        (_run("collapsed", 4), _run("not_run"), "-"),
    ],
)
def test_marks_of_runs(paper, own, mark):
    assert run_mark(paper, own) == mark


@pytest.mark.parametrize(
    ("paper", "own", "mark"),
    [
        ((0.5, 1.3), (0.5, 1.3), "="),
        ((0.5, 1.3), (1.2, 2.0), "~"),
        ((0.5, 1.3), (1.4, 2.0), "x"),
        ((0.5, 1.3), (None, 2.0), "~"),
        ((0.5, 1.3), (None, None), "?"),
        ((0.5, 1.3), None, "-"),
    ],
)
def test_marks_of_sets(paper, own, mark):
    assert set_mark(paper, own) == mark


def test_verdicts_speak_of_every_group_and_metrics_hold_the_sets(two_arms):
    results = load_results(two_arms)
    found = verdicts(results)
    assert [(v.law, v.arm) for v in found] == [
        ("i", "recomputed"), ("i", "vanilla"), ("ii", "recomputed"), ("ii", "vanilla"),
    ]  # fmt: skip
    assert "collapsed from 0.016" in found[0].sentences
    assert "No run with S > 1 collapsed" in found[3].sentences
    group = metrics(results)["groups"]["recomputed_tiny"]
    assert group["cells"]["collapsed"] == 6
    assert group["boundary"]["collapsed_min"] == pytest.approx(0.016)
    assert group["clock"]["c2_low"] < 0.032 <= group["clock"]["c2_high"] * (1 + 1e-9)
    assert json.loads((results.directory / "metrics.json").read_text()) == metrics(results)


def test_macros_are_letters_only(two_arms):
    lines = macros(load_results(two_arms)).splitlines()[1:]
    names = [line.split("{")[1].split("}")[0] for line in lines]
    assert all(name.startswith("\\") and name[1:].isalpha() for name in names)
    assert len(set(names)) == len(names)


def test_latex_escapes_what_latex_reads():
    assert tex_text("a_b & 50% #1 {x} ^2 ~ \\") == (
        r"a\_b \& 50\% \#1 \{x\} \textasciicircum{}2 \textasciitilde{} \textbackslash{}"
    )


def test_latex_has_one_column_a_value(two_arms):
    table = table1(load_results(two_arms))
    lines = latex_text(table).splitlines()
    body = [line for line in lines if line.endswith(r"\\")]
    assert len(body) == len(table.display) + 1
    assert {line.count(" & ") for line in body} == {len(table.display.columns) - 1}


def test_another_process_writes_the_same_bytes(two_arms):
    """Whatever the process's hash seed: no order in a table may come from a set."""
    folder = two_arms.parent / "results" / "proxy"

    def written(seed: str) -> dict[str, bytes]:
        command = [sys.executable, "-m", "collapse_laws", "tables", "--params", str(two_arms)]
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT / "src")}
        subprocess.run(command, env=environment, check=True, capture_output=True)
        return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}

    first = written("1")
    assert len(first) >= 7 * 3 + 2
    assert written("2") == first


def test_active_copies_and_errors(two_arms, capsys):
    root = two_arms.parent
    assert main(["tables", "--params", str(two_arms), "--active"]) == 0
    for number in (1, 2, 3):
        copy = (root / "results" / f"table{number}.csv").read_bytes()
        assert copy == (root / "results" / "proxy" / f"table{number}.csv").read_bytes()
    assert main(["tables", "--params", str(two_arms), "--study", "nothing"]) == 2
    assert "allowed: proxy, published" in capsys.readouterr().err
    assert main(["figures", "--params", str(two_arms), "--only", "nothing"]) == 2
    assert "allowed: boundary" in capsys.readouterr().err
