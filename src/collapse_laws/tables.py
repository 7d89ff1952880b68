"""Tables 1 to 3 of a study: where each run collapsed, the configuration, and the seeds.

Each table has two forms: a display for readers (HTML, LaTeX) in the paper's layout, and a tidy one
for machines (CSV), one row a run or a knob, in which every cell says its label, its dates, its
surrogate with clip range, and its seed. First drop and lasting onset are separate columns. A
planned cell that was not run is `-`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pandas as pd

from collapse_laws.results import AXES, LABELS, StudyResults
from collapse_laws.wording import MEANINGS, SCALES, WORDS, number, plural


@dataclass(frozen=True, slots=True)
class Table:
    """A table in both forms; `display` holds text only."""

    name: str
    title: str
    caption: str
    display: pd.DataFrame
    tidy: pd.DataFrame
    notes: tuple[str, ...] = ()


def entry(cell: pd.Series) -> str:
    """A run in a few characters: `4 (32)`, `stable (>640)`, `osc. 3 (24)`, `undecided (>96)`, `-`."""
    label, updates = cell["label"], cell["updates"]
    beyond = "" if pd.isna(updates) else f" (>{updates})"
    if label == "collapsed":
        return f"{cell['collapse_index']} ({cell['collapse_step']})"
    if label == "oscillating":
        return f"osc. {cell['first_drop_index']} ({cell['first_drop_step']})"
    if label == "not_run":
        return "-"
    return {"survived": "stable"}.get(label, WORDS[label]) + beyond


ENTRIES = (
    "M (t): collapsed, first seen in rollout batch M, at learner update t = S x M, so that the onset lies in (t - S, "
    "t].",
    "stable (>t): outlived twice the reference clock, observed for t updates.",
    "osc. M (t): oscillating; first drop in batch M, at update t, then recovered.",
    "undecided (>t): no lasting drop, but too short to call it stable.",
    "-: planned, not run.",
)


def table1(results: StudyResults) -> Table:
    """Collapse index and step of every planned cell; rows (arm, model, S, seed), columns learning rates."""
    cells = results.cells
    tidy = cells[
        "cell arm surrogate ratio clip_low clip_high dual_clip model sync_interval lr seed label collapse_index "
        "collapse_step onset_low onset_high first_drop_index first_drop_step partial_drop_index partial_drop_step "
        "start_reward peak_reward last_reward updates horizon_updates reference_lr_budget reason".split()
    ].copy()
    tidy.insert(0, "scale", results.scale)
    tidy.insert(0, "study", results.name)
    tidy["sync_lr_product"] = tidy["sync_interval"] * tidy["lr"]
    tidy["onset_lr_budget"] = tidy["onset_high"].astype("Float64") * tidy["lr"]
    shown = cells.assign(says=[entry(cell) for _, cell in cells.iterrows()])
    index = ["arm", "model", "sync_interval", "seed"]
    wide = shown.pivot_table(index=index, columns="lr", values="says", aggfunc="first", sort=False, fill_value="")
    wide = wide[sorted(wide.columns, reverse=True)].sort_index(
        level=["arm", "model", "sync_interval", "seed"],
        key=lambda level: level.map(_ranks(cells, level.name)),
    )
    wide.columns = [f"lr {number(rate)}" for rate in wide.columns]
    display = wide.reset_index().rename(columns={"sync_interval": "S"}).astype(str)
    return Table(
        "table1",
        "Table 1. Where each run collapsed",
        f"{results.title}. Scale: {SCALES[results.scale]}.",
        display,
        tidy,
        (
            *(f"{arm}: {results.arms[arm]}." for arm in dict.fromkeys(cells["arm"])),
            *(note for note in ENTRIES if _used(note, shown["says"])),
        ),
    )


def _ranks(cells: pd.DataFrame, name: str) -> dict:
    """Arms and models in the order of the study, numbers by size."""
    values = list(dict.fromkeys(cells[name]))
    return {v: i for i, v in enumerate(values if name in ("arm", "model") else sorted(values))}


def _used(note: str, says: pd.Series) -> bool:
    start = {"M": "0123456789", "o": "osc", "s": "stable", "u": "undecided", "-": "-"}[note[0]]
    if note[0] == "M":
        return says.str[0].isin(list(start)).any()
    return says.str.startswith(start).any()


def table3(results: StudyResults) -> Table:
    """Settings planned with several seeds: one column for each seed, and whether they agree."""
    sizes = results.cells.groupby(AXES, sort=False)["seed"].transform("size")
    repeated = results.cells[sizes > 1]
    rows, tidy = [], []
    for key, cells in repeated.groupby(AXES, sort=False):
        done = cells[cells["label"] != "not_run"]
        agreement = _agreement(done)
        setting = dict(zip(AXES, key, strict=True))
        says = {f"seed {cell['seed']}": entry(cell) for _, cell in cells.iterrows()}
        shown = {**setting, "lr": number(setting["lr"]), **says, "seeds agree": agreement}
        rows.append(shown)
        for _, cell in cells.iterrows():
            names = "seed label collapse_index collapse_step first_drop_index first_drop_step"
            tidy.append({**setting, **cell[names.split()], "seeds_agree": agreement})
    display = pd.DataFrame(rows).rename(columns={"sync_interval": "S"}).fillna("-").astype(str)
    if not rows:
        display = pd.DataFrame({"seeds": ["No setting of this study is planned with several seeds."]})
    return Table(
        "table3",
        "Table 3. Seeds",
        f"Settings planned with several seeds. {results.title}. Scale: {SCALES[results.scale]}.",
        display,
        pd.DataFrame(tidy) if tidy else pd.DataFrame(columns=[*AXES, "seed", "label"]),
        ("yes: same label and, where collapsed, same index M. label: same label, different M.",),
    )


def _agreement(done: pd.DataFrame) -> str:
    if len(done) < 2:
        return "-"
    if done["label"].nunique() > 1:
        return "no: " + ", ".join(
            f"{(done['label'] == label).sum()} {WORDS[label]}" for label in LABELS if (done["label"] == label).any()
        )
    if done["label"].iloc[0] != "collapsed" or done["collapse_index"].nunique() == 1:
        return f"yes ({len(done)})"
    low, high = done["collapse_index"].min(), done["collapse_index"].max()
    return f"label: M from {low} to {high}"


def counts(results: StudyResults, arm: str | None = None, model: str | None = None) -> dict[str, int]:
    """How many planned cells have each label, all labels listed."""
    cells = results.cells
    if arm is not None:
        cells = cells[(cells["arm"] == arm) & (cells["model"] == model)]
    return {label: int((cells["label"] == label).sum()) for label in LABELS}


def counts_table(results: StudyResults) -> Table:
    """Labels by group, with what each label means."""
    rows = []
    for arm, model in results.groups:
        found = counts(results, arm, model)
        rows.append({"arm": arm, "model": model, **{WORDS[k]: str(v) for k, v in found.items()}})
    display = pd.DataFrame(rows).astype(str)
    present = [label for label, found in counts(results).items() if found]
    notes = tuple(f"{WORDS[label]}: {MEANINGS[label]}." for label in present)
    if results.published:
        notes = ("Labels as the paper gives them.",)
    return Table("counts", "Outcomes", "Planned cells by outcome.", display, display, notes)


def sensitivity_table(results: StudyResults) -> Table:
    """How many runs keep label and index when the criterion's rho changes, by group."""
    rows = [
        {"arm": group["arm"], "model": group["model"], **row}
        for group in (results.laws or {}).get("groups", [])
        for row in group.get("sensitivity", [])
    ]
    names = {
        "rho": "rho", "runs": "runs", "collapsed": "collapsed",
        "same_label": "same label as declared", "same_index": "same index M as declared",
    }  # fmt: skip
    tidy = pd.DataFrame(rows, columns=["arm", "model", *names])
    display = tidy.rename(columns=names).astype(str)
    return Table(
        "sensitivity",
        "Sensitivity of Table 1 to the criterion",
        "Runs by group when the threshold rho replaces the declared 0.5.",
        display,
        tidy,
    )


def runs_table(results: StudyResults) -> Table:
    """What made each record: stop reason, wall time, digests, versions, hardware."""
    rows = []
    for name, file in results.outcomes.items():
        run = file["run"]
        rows.append(
            {
                "cell": name,
                "updates": str(run["updates"]),
                "stopped at": str(run["stop_reason"] or "-"),
                "wall time (s)": number(run["wall_seconds"], 4),
                "record digest": str(run["record_digest"] or "-"),
                "settings digest": str(file["settings_digest"] or "-"),
                "source fingerprint": str(run["source_fingerprint"] or "-"),
                "versions": _words(run["versions"]),
                "hardware": _words(run["hardware"]),
            }
        )
    names = "cell,updates,stopped at,wall time (s),record digest,settings digest,source fingerprint"
    display = pd.DataFrame(rows, columns=[*names.split(","), "versions", "hardware"])
    total = sum(file["run"]["wall_seconds"] or 0 for file in results.outcomes.values())
    notes = (f"{plural(len(rows), 'record')}, {number(total / 3600)} hours of training in all.",)
    return Table("runs", "Run records", "What made each record.", display, display, notes)


def _words(values: dict) -> str:
    return ", ".join(f"{k} {v}" for k, v in (values or {}).items() if v is not None) or "-"


def text_of(value: object) -> str:
    """A setting's value for readers."""
    if isinstance(value, float):
        return number(value, 6)
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    return (
        {None: "none", True: "yes", False: "no"}.get(value, str(value))
        if (value is None or isinstance(value, bool))
        else str(value)
    )
