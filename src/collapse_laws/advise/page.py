"""A diagnosis as one HTML page: no script, no network, plots as inline SVG; everything that came from a log is
escaped.
"""

from __future__ import annotations

import importlib.resources
from pathlib import Path

import jinja2
import numpy as np
from markupsafe import Markup, escape

from collapse_laws.advise.diagnose import Diagnosis
from collapse_laws.advise.readings import NAMES

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 760, 200, 60, 24
_MOST_POINTS = 1500


def write_page(path: Path, diagnosis: Diagnosis) -> None:
    """Write the page."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    source = importlib.resources.files("collapse_laws").joinpath("templates/diagnose.html.j2").read_text("utf-8")
    text = environment.from_string(source).render(
        d=diagnosis, log=diagnosis.log, outcome=diagnosis.outcome, plots=_plots(diagnosis)
    )
    Path(path).write_text(text, encoding="utf-8")


def _plots(diagnosis: Diagnosis) -> list[Markup]:
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
    found = [
        plot(
            f"reward ({log.keys.get('reward', 'reward_mean')})",
            log.series.last,
            log.series.reward,
            marks,
            batches,
        )
    ]
    for role, name in NAMES.items():
        values = log.series.metrics.get(role)
        if values is not None and np.isfinite(values).sum() > 1:
            found.append(plot(f"{name} ({log.keys.get(role, role)})", log.series.last, values, marks))
    return found


def plot(
    title: str,
    t: np.ndarray,
    values: np.ndarray,
    marks: list[tuple[int, str]],
    batches: tuple[np.ndarray, np.ndarray] | None = None,
) -> Markup:
    """One metric against the learner update, at most 1500 points, with dated marks; batches are drawn as dots."""
    known = np.isfinite(values)
    t, values = t[known], values[known]
    thin = slice(None, None, max(1, -(-t.size // _MOST_POINTS)))
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    if high - low < 1e-12 * max(1.0, abs(high)):
        margin = 0.5 * max(1.0, abs(high))
        low, high = low - margin, high + margin
    first, last = (int(t[0]), max(int(t[-1]), int(t[0]) + 1)) if t.size else (0, 1)

    def x(at: np.ndarray | float) -> np.ndarray | float:
        return _LEFT + (at - first) / (last - first) * (_WIDTH - _LEFT - 10)

    def y(value: np.ndarray | float) -> np.ndarray | float:
        return 10 + (high - value) / (high - low) * (_HEIGHT - _BOTTOM - 20)

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
    for step, text in marks:
        parts.append(f'<line class="mark" x1="{x(step):.1f}" x2="{x(step):.1f}" y1="6" y2="{_HEIGHT - _BOTTOM}"/>')
        parts.append(f'<text class="mark" x="{x(step) + 4:.1f}" y="16">{escape(text)}, {step}</text>')
    parts += [
        f'<text x="4" y="16">{high:.3g}</text><text x="4" y="{_HEIGHT - _BOTTOM - 4}">{low:.3g}</text>',
        f'<text x="{_LEFT}" y="{_HEIGHT - 6}">{first}</text>'
        f'<text x="{_WIDTH - 10}" y="{_HEIGHT - 6}" text-anchor="end">update {last}</text>',
        "</svg>",
    ]
    return Markup("".join(str(part) for part in parts))
