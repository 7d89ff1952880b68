"""Figures of a study, drawn from its outcomes and run records; `catalogue` lists what there is.

The modules that draw are imported only when they draw, so that the page can read the catalogue
without matplotlib.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from collapse_laws.figures.catalogue import figure_names, spec
from collapse_laws.results import StudyResults
from collapse_laws.runrecord import write_json

NOTES = "notes.json"  # name -> what a figure leaves out, or why it is empty


def draw(results: StudyResults, names: Sequence[str] | None = None) -> dict[str, dict]:
    """Draw figures (default: all of the study) into results/<study>/figures/; returns their notes by name.

    Each comes as SVG, PDF, PNG and the plotted numbers as CSV, and equal input gives equal bytes.
    A figure that has
    nothing to show is drawn as the sentence that says why. Notes of figures not drawn now are kept.
    """
    from collapse_laws.figures.canvas import save
    from collapse_laws.results import read_json

    directory = results.directory / "figures"
    notes = read_json(directory / NOTES) or {}
    for name in names or figure_names(results.name):
        module = importlib.import_module(f"collapse_laws.figures.{spec(name).module}")
        drawing = getattr(module, f"draw_{name}")(results)
        save(drawing, directory, name)
        notes[name] = {"empty": drawing.empty, "notes": drawing.notes}
    known = figure_names(results.name)
    notes = {name: notes[name] for name in known if name in notes}
    write_json(directory / NOTES, notes)
    return notes
