"""A diagnosis as one HTML page: no script, no network, plots as inline SVG; everything that came from a log is
escaped.
"""

from __future__ import annotations

import importlib.resources
from dataclasses import dataclass
from pathlib import Path

import jinja2
import numpy as np
from markupsafe import Markup, escape

from collapse_laws.advise.diagnose import Diagnosis
from collapse_laws.advise.readings import NAMES, step_note
from collapse_laws.advise.wording import around_a_drop

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 760, 200, 60, 24
_MOST_POINTS = 1500
_ROW = 13  # height of a row of labels; each mark has its own, below which its line begins: drops may be close


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing and the words under it."""

    title: str
    drawing: Markup
    meaning: str


def write_page(path: Path, diagnosis: Diagnosis) -> None:
    """Write the page."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    source = importlib.resources.files("collapse_laws").joinpath("templates/diagnose.html.j2").read_text("utf-8")
    text = environment.from_string(source).render(
        d=diagnosis,
        log=diagnosis.log,
        outcome=diagnosis.outcome,
        figures=_figures(diagnosis),
        heading="Around the drop" if around_a_drop(diagnosis.outcome) else "At the end of the run",
        note=step_note(diagnosis.log),
        unit=_unit(diagnosis),
    )
    Path(path).write_text(text, encoding="utf-8")


def _unit(diagnosis: Diagnosis) -> str:
    return "synchronisation" if diagnosis.log.counts_synchronisations else "update"


def _figures(diagnosis: Diagnosis) -> list[Figure]:
    log, outcome = diagnosis.log, diagnosis.outcome
    cycle = log.sync_interval or log.series.stride
    marks = [
        (outcome.partial_drop_step, "partial drop"),
        (
            outcome.collapse_step if outcome.collapse_step is not None else outcome.first_drop_step,
            "drop",
        ),
    ]
    marks = [(step, text) for step, text in marks if step is not None]
    batches = (log.snapshots.index * cycle, log.snapshots.reward)
    unit = _unit(diagnosis)
    dashed = f" Dashed: {' and '.join(text for _, text in marks)}, dated in {unit}s." if marks else ""
    dots = "the mean of a rollout batch" if log.sync_interval else "a logged record"
    title = f"reward ({log.keys.get('reward', 'reward_mean')})"
    found = [
        Figure(
            title,
            plot(title, log.series.last, log.series.reward, marks, batches, unit),
            f"Line: the logged rewards. Dots: {dots}, at its first {unit}.{dashed}",
        )
    ]
    for role, name in NAMES.items():
        values = log.series.metrics.get(role)
        if values is not None and np.isfinite(values).sum() > 1:
            title = f"{name} ({log.keys.get(role, role)})"
            drawing = plot(title, log.series.last, values, marks, unit=unit)
            found.append(Figure(title, drawing, f"Line: the logged values.{dashed}"))
    return found


def plot(
    title: str,
    t: np.ndarray,
    values: np.ndarray,
    marks: list[tuple[int, str]],
    batches: tuple[np.ndarray, np.ndarray] | None = None,
    unit: str = "update",
) -> Markup:
    """One metric against the learner update, at most 1500 points, with dated marks; batches are drawn as dots."""
    known = np.isfinite(values)
    t, values = t[known], values[known]
    thin = slice(None, None, max(1, -(-t.size // _MOST_POINTS)))
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    if high - low < 1e-12 * max(1.0, abs(high)):
        margin = 0.5 * max(1.0, abs(high))
        low, high = low - margin, high + margin
    first = int(t[0]) if t.size else 0
    if batches is not None and batches[0].size:
        first = min(first, int(batches[0].min()))  # a batch is drawn at its first update, before its first record
    last = max(int(t[-1]), first + 1) if t.size else first + 1
    top = 10 + _ROW * len(marks)

    def x(at: np.ndarray | float) -> np.ndarray | float:
        return _LEFT + (at - first) / (last - first) * (_WIDTH - _LEFT - 10)

    def y(value: np.ndarray | float) -> np.ndarray | float:
        return top + (high - value) / (high - low) * (_HEIGHT - _BOTTOM - top - 10)

    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x(t[thin]), y(values[thin]), strict=True))
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        f'<polyline class="line" points="{points}"/>',
    ]
    if batches is not None:
        ok = np.isfinite(batches[1])
        skip = slice(None, None, max(1, -(-int(ok.sum()) // _MOST_POINTS)))
        parts += [
            f'<circle class="batch" cx="{a:.1f}" cy="{b:.1f}" r="3"/>'
            for a, b in zip(x(batches[0][ok][skip]), y(np.clip(batches[1][ok][skip], low, high)), strict=True)
        ]
    for row, (step, text) in enumerate(marks):
        label = f"{escape(text)}, {step}"
        side, shift = ("end", -4) if x(step) > _WIDTH - 10 - 6 * len(label) else ("start", 4)
        parts.append(
            f'<line class="mark" x1="{x(step):.1f}" x2="{x(step):.1f}" y1="{5 + _ROW * row}" y2="{_HEIGHT - _BOTTOM}"/>'
        )
        parts.append(
            f'<text class="mark" x="{x(step) + shift:.1f}" y="{14 + _ROW * row}" text-anchor="{side}">{label}</text>'
        )
    parts += [
        f'<text x="4" y="{top + 4}">{high:.3g}</text><text x="4" y="{_HEIGHT - _BOTTOM - 4}">{low:.3g}</text>',
        f'<text x="{_LEFT}" y="{_HEIGHT - 6}">{first}</text>'
        f'<text x="{_WIDTH - 10}" y="{_HEIGHT - 6}" text-anchor="end">{escape(unit)} {last}</text>',
        "</svg>",
    ]
    return Markup("".join(str(part) for part in parts))
