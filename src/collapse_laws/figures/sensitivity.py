"""The outcome of each run under other thresholds rho of the collapse criterion, written out in a grid."""

from __future__ import annotations

import pandas as pd
from matplotlib.patches import Rectangle

from collapse_laws.figures.canvas import Drawing, nothing, panels, title
from collapse_laws.figures.theme import BAND, INK, MUTED
from collapse_laws.results import StudyResults
from collapse_laws.wording import WORDS, number, plural

MAX_ROWS = 40
_SHORT = {"survived": "stable", "oscillating": "osc."}


def sensitivity_frame(results: StudyResults) -> pd.DataFrame:
    """One row for each run and threshold: rho, label, collapse index and step; empty where no outcome tells."""
    axes = "arm model sync_interval lr seed".split()
    rows = []
    for _, cell in results.cells.iterrows():
        for entry in results.outcomes.get(cell["cell"], {}).get("sensitivity", []):
            names = ("rho", "label", "collapse_index", "collapse_step")
            rows.append({**{a: cell[a] for a in axes}, **{n: entry[n] for n in names}})
    frame = pd.DataFrame(rows, columns=[*axes, "rho", "label", "collapse_index", "collapse_step"])
    return frame.astype({"collapse_index": "Int64", "collapse_step": "Int64"})


def draw_sensitivity(results: StudyResults) -> Drawing:
    """Rows: runs; columns: rho; text: collapse index or label. Runs that no threshold changes are
    counted, not drawn."""
    frame = sensitivity_frame(results)
    if frame.empty:
        return nothing("No outcome of this study has a sensitivity analysis yet.")
    frame["says"] = [_says(row) for row in frame.itertuples()]
    axes = "arm model sync_interval lr seed".split()
    rhos = sorted(frame["rho"].unique())
    grid = frame.pivot_table(index=axes, columns="rho", values="says", aggfunc="first", sort=False)
    changed = grid[grid.nunique(axis=1) > 1]
    same = len(grid) - len(changed)
    notes = [f"{plural(same, 'run')} of {len(grid)} have the same outcome at every threshold."]
    shown = changed
    if changed.empty:
        drawing = nothing(f"All {len(grid)} runs have the same outcome at every threshold rho.")
        drawing.data = frame.drop(columns="says")
        return drawing
    if len(changed) > MAX_ROWS:
        notes.append(f"The first {MAX_ROWS} of {len(changed)} runs that change are drawn.")
        shown = changed.iloc[:MAX_ROWS]
    figure, panel = panels(1, 1, 7.6, 0.9 + 0.27 * len(shown))
    _grid(panel[0, 0], shown, rhos, len(results.groups) > 1)
    return Drawing(figure, frame.drop(columns="says"), notes=notes)


def _says(row) -> str:
    if row.label == "collapsed":
        return f"M = {row.collapse_index}"
    return _SHORT.get(row.label, WORDS[row.label])


def _grid(panel, shown: pd.DataFrame, rhos: list[float], several: bool) -> None:
    usual = shown[min(rhos, key=lambda rho: abs(rho - 0.5))]
    for y, (_, row) in enumerate(shown.iterrows()):
        for x, rho in enumerate(rhos):
            differs = row[rho] != usual.iloc[y]
            panel.add_patch(
                Rectangle(
                    (x - 0.47, y - 0.42), 0.94, 0.84, facecolor=BAND,
                    edgecolor=INK if differs else BAND, linewidth=1,
                )
            )  # fmt: skip
            weight = "bold" if differs else "normal"
            panel.text(x, y, row[rho], ha="center", va="center", fontsize=8.5, fontweight=weight)
    names = [
        (f"{key[1]}, {key[0]}, " if several else "") + f"S = {key[2]}, lr {number(key[3])}, seed {key[4]}"
        for key in shown.index
    ]
    panel.set_yticks(range(len(names)), names, parse_math=False)
    panel.set_xticks(range(len(rhos)), [f"rho = {rho:g}" for rho in rhos])
    panel.set(xlim=(-0.55, len(rhos) - 0.45), ylim=(len(names) - 0.45, -0.55))
    panel.grid(False)
    panel.tick_params(length=0)
    for spine in panel.spines.values():
        spine.set_color(MUTED)
        spine.set_visible(False)
    title(panel, "Framed and bold: differs from the declared rho = 0.5")
