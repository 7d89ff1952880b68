"""Paper against reproduction: match marks, and a twin of each table.

Marks, defined here alone: `=` the same outcome, or the same set; `~` sets overlap; `x` they
contradict each other; `?` the reproduction says too little (ended early, failed, no signal, set
unbounded); `-` not run. Runs are compared one by one only where the study has the paper's models.
At any other scale absolute times cannot match, so a proxy gets a column "law holds?" instead and
never shares a row with the paper without its label.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from collapse_laws.results import PUBLISHED, StudyResults, read_json
from collapse_laws.results_published import load_published
from collapse_laws.tables import Table, entry
from collapse_laws.wording import interval, number

MARKS = {
    "=": "same",
    "~": "overlaps",
    "x": "contradicts",
    "?": "says too little",
    "-": "not run",
}
MARKS_NOTE = "Marks: " + ", ".join(f"{mark} {text}" for mark, text in MARKS.items()) + "."
HOLDS = {"holds": "yes", "refuted": "no", "not decided by these data": "not decided"}
PAPER = "paper, as published"
Ends = Sequence[float | None] | None


def spoken(mark: str) -> str:
    """A mark with its word, so that no verdict hangs on one character."""
    return f"{mark} {MARKS[mark]}"


def run_mark(paper: pd.Series, own: pd.Series) -> str:
    """The mark of one run against the paper's: same label, and where both collapsed the same index M."""
    if own["label"] == "not_run":
        return "-"
    if own["label"] in ("undecided", "failed", "no_signal") or paper["label"] == "undecided":
        return "?"
    if own["label"] != paper["label"]:
        return "x"
    if own["label"] != "collapsed" or own["collapse_index"] == paper["collapse_index"]:
        return "="
    apart = own["onset_low"] >= paper["onset_high"] or paper["onset_low"] >= own["onset_high"]
    return "x" if apart else "~"


def set_mark(paper: Ends, own: Ends) -> str:
    """The mark of one interval against the paper's; an end None is unbounded."""
    if paper is None or own is None or (own[0] is None and own[1] is None):
        return "?" if own is not None or paper is None else "-"
    if tuple(paper) == tuple(own):
        return "="
    low = max(-float("inf") if ends[0] is None else ends[0] for ends in (paper, own))
    high = min(float("inf") if ends[1] is None else ends[1] for ends in (paper, own))
    return "~" if low <= high else "x"


def published_of(results: StudyResults) -> StudyResults | None:
    """The paper's outcomes, or None where `collapse-laws published` has not been run."""
    if read_json(results.root / "results" / PUBLISHED / "laws.json") is None:
        return None
    return load_published(results.root)


def table1_twin(results: StudyResults) -> Table:
    """Run by run at paper scale, law by law otherwise."""
    paper = published_of(results)
    if results.scale == "paper" and not results.published and paper is not None:
        return _runs(results, paper, "table1", "Table 1, paper and reproduction", None)
    return _laws(results, paper)


def table3_twin(results: StudyResults) -> Table:
    """The paper's seeds, run by run at paper scale; otherwise whether seeds agree at all."""
    paper = published_of(results)
    title = "Table 3, paper and reproduction"
    if results.scale == "paper" and not results.published and paper is not None:
        several = paper.cells.groupby(["model", "sync_interval", "lr"])["seed"].transform("size") > 1
        return _runs(results, paper, "table3", title, paper.cells[several])
    from collapse_laws.tables import table3

    own = table3(results)
    note = "The paper: three seeds agree in every M of Llama-3.2-3B at S = 32."
    return Table("table3_twin", title, f"{own.caption} {note}", own.display, own.tidy, (*own.notes, note))


def table2_twin(results: StudyResults, table: Table) -> Table:
    """Each knob with what the paper says of it: its mark is that of the value used here."""
    display = table.display.copy()
    display["paper"] = [
        {"stated": "stated", "derived": "derived from the text"}.get(mark, "not in the text")
        for mark in display["mark"]
    ]
    return Table(
        "table2_twin",
        "Table 2, paper and reproduction",
        f"{table.caption} The body of the paper's Table 2 is missing from its text, so only the mark can be compared.",
        display.drop(columns="key"),
        display,
        table.notes,
    )


def _runs(results: StudyResults, paper: StudyResults, name: str, title: str, cells: pd.DataFrame | None) -> Table:
    keys = ["model", "sync_interval", "lr", "seed"]
    own = {tuple(cell[keys]): cell for _, cell in results.cells.iterrows()}
    missing = pd.Series({"label": "not_run", "updates": pd.NA})
    rows = []
    for _, there in (paper.cells if cells is None else cells).iterrows():
        here = own.get(tuple(there[keys]), missing)
        rows.append(
            {
                "model": there["model"],
                "S": str(there["sync_interval"]),
                "lr": number(there["lr"]),
                "seed": str(there["seed"]),
                "paper": entry(there),
                "reproduced": entry(here),
                "mark": spoken(run_mark(there, here)),
            }
        )
    frame = pd.DataFrame(rows)
    caption = f"{results.title}. The paper's runs, and the same runs here."
    return Table(f"{name}_twin", title, caption, frame, frame, (MARKS_NOTE,))


def law_rows(results: StudyResults, paper: StudyResults | None) -> list[dict[str, str]]:
    """One row for each law and group: what the law asks, the set here, whether it holds; then the paper's sets."""
    rows = []
    for source, label in ((results, results.scale), (paper, PAPER)):
        if source is None or (source is paper and results.published):
            continue
        for group in (source.laws or {}).get("groups", []):
            rows += _group_rows(group, PAPER if source.published else label)
    return rows


def _group_rows(group: dict[str, Any], scale: str) -> list[dict[str, str]]:
    boundary, clock = group["boundary"], group["clock"]
    head = {"scale": scale, "arm": group["arm"], "model": group["model"]}
    product = boundary["product"]
    bracket = f"stable to {number(product['stable_max'])}, collapsed from {number(product['collapsed_min'])}"
    return [
        {
            **head, "law": "(i) alpha = 1", "set found": interval(boundary["alpha"]),
            "other evidence": f"S x lr: {bracket}", "law holds?": HOLDS[boundary["verdict"]],
        },
        {
            **head, "law": "(ii) b = 1, c = 0",
            "set found": f"b {interval(clock['b'])}, c {interval(clock['c'])}",
            "other "
            "evidence": f"c2: {interval(clock['c2'], '(]')}", "law holds?": HOLDS[clock["verdict"]],
        },
    ]  # fmt: skip


def _laws(results: StudyResults, paper: StudyResults | None) -> Table:
    columns = ["scale", "arm", "model", "law", "set found", "other evidence", "law holds?"]
    frame = pd.DataFrame(law_rows(results, paper), columns=columns)
    notes = [
        "Law (i): the largest stable rate goes as S^-alpha. Law (ii): the onset goes as lr^-b S^c; c2 is the budget t "
        "x lr that all onset intervals share.",
        "A set is the hull of the exact feasible set and the 95% profile set; the law holds where the set lies within "
        "0.1 of what it asks, and is refuted where the set misses that.",
    ]
    if not results.published:
        notes.append("Absolute times and rates of this scale cannot match the paper's; exponents can.")
        if paper is None:
            notes.append("The paper's rows are missing: run `collapse-laws published`.")
    if not results.laws:
        notes.append("The laws have not been fitted yet: run `collapse-laws laws`.")
    title = "Table 1, what it says of the laws"
    return Table("table1_twin", title, f"{results.title}.", frame, frame, tuple(notes))
