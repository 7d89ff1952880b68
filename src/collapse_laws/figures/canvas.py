"""Saving a figure: SVG, PDF, PNG and the plotted numbers as CSV, with hover texts and the same bytes every time.

No date is written, ids come from a fixed salt, and coordinates are rounded to a hundredth of a
point. Hover texts are SVG `<title>` elements, so that they work in any viewer without a script.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from collapse_laws.figures.theme import INK, MUTED, set_theme
from collapse_laws.wording import number

_PATH = re.compile(r' d="([^"]*)"')
_LONG = re.compile(r"(\d+\.\d\d)\d+")


@dataclass
class Drawing:
    """A drawn figure with the numbers behind it; `empty` says why there is nothing to draw."""

    figure: Figure | None = None
    data: pd.DataFrame = field(default_factory=pd.DataFrame)
    tips: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what was left out, for the page
    empty: str | None = None

    def tip(self, artist: Artist, text: str) -> None:
        """Give an artist a hover text."""
        artist.set_gid(f"tip{len(self.tips)}")
        self.tips.append(text)


def nothing(reason: str) -> Drawing:
    """A figure that cannot be drawn, with the reason as its text."""
    set_theme()
    figure = plt.figure(figsize=(7.2, 0.9))
    figure.text(0.01, 0.5, reason, va="center", color=INK, fontsize=10, parse_math=False)
    return Drawing(figure, pd.DataFrame({"note": [reason]}), empty=reason)


def panels(rows: int, columns: int, width: float, height: float, **options) -> tuple[Figure, np.ndarray]:
    """A grid of axes; `width` and `height` of one panel in inches. Returns axes [rows, columns]."""
    set_theme()
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(width * columns, height * rows),
        squeeze=False,
        layout="constrained",
        **options,
    )
    return figure, axes


def grid(
    count: int, columns: int, width: float, height: float, ylabel: str = "", **options
) -> tuple[Figure, np.ndarray]:
    """`panels` for `count` drawings in rows of `columns`; places left over are empty. Returns axes [rows, columns]."""
    figure, axes = panels(-(-count // columns), columns, width, height, **options)
    for panel in axes.ravel()[count:]:
        panel.set_axis_off()
    for row in axes:
        row[0].set_ylabel(ylabel)
    return figure, axes


def blocks(
    titles: Sequence[str], rows: int, columns: Sequence[int], width: float, height: float, **options
) -> tuple[Figure, list[np.ndarray]]:
    """A grid of axes [rows, columns of this block] under each title, the blocks below each other.

    `width` of a panel in inches where the block has the most columns; a block of fewer has wider panels.
    """
    set_theme()
    tall = height * rows + 0.3
    figure = plt.figure(figsize=(width * max(columns), tall * len(titles) + 0.4), layout="constrained")
    parts = figure.subfigures(len(titles), 1, squeeze=False)[:, 0]
    axes = []
    for part, text, count in zip(parts, titles, columns, strict=True):
        part.suptitle(text, x=0.005, ha="left", fontsize=10.5, fontweight="bold", parse_math=False)
        axes.append(part.subplots(rows, count, squeeze=False, **options))
    return figure, axes


def wrapped(text: str, inches: float, size: float = 10) -> str:
    """The text in lines that fit a width, each at least one word long."""
    return "\n".join(textwrap.wrap(text, max(12, int(inches * 72 / (0.56 * size)))) or [""])


def plain_ticks(axis: Axis, low: float, high: float) -> None:
    """Ticks of a logarithmic axis at 1, 2 and 5 times powers of ten as plain numbers; fewer over a wide range."""
    steps = (1, 2, 5) if high / low < 60 else (1, 3) if high / low < 400 else (1,)
    powers = range(int(np.floor(np.log10(low))) - 1, int(np.ceil(np.log10(high))) + 1)
    axis.set_major_locator(FixedLocator([m * 10.0**p for p in powers for m in steps]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: number(value))


def legend_columns(figure: Figure, labels: Sequence[str], size: float = 9) -> int:
    """How many entries of a legend fit side by side into the figure's width."""
    entry = 0.56 * size / 72 * max(len(label) for label in labels) + 0.6  # a line, its text and the gap, in inches
    return int(np.clip(figure.get_figwidth() // entry, 1, len(labels)))


def title(axes: Axes, text: str, **options) -> None:
    """A left-aligned title in which no character means mathematics."""
    axes.set_title(text, parse_math=False, **options)


def say(axes: Axes, text: str) -> None:
    """A sentence in the middle of a panel that has no data."""
    axes.text(
        0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=MUTED,
        fontsize=9, wrap=True, parse_math=False,
    )  # fmt: skip
    axes.set_axis_off()


def save(drawing: Drawing, directory: Path, name: str) -> None:
    """Write <directory>/<name>.{svg,pdf,png,csv} and close the figure."""
    directory.mkdir(parents=True, exist_ok=True)
    figure = drawing.figure
    figure.canvas.draw()  # lays the panels out, once for all formats
    figure.set_layout_engine("none")
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    _write(directory / f"{name}.svg", _svg(buffer.getvalue(), drawing.tips).encode())
    for suffix, options in (
        ("pdf", {"metadata": {"CreationDate": None, "Creator": None}}),
        ("png", {"metadata": {"Software": None}, "dpi": 130, "facecolor": "white"}),
    ):
        binary = io.BytesIO()
        figure.savefig(binary, format=suffix, **options)
        _write(directory / f"{name}.{suffix}", binary.getvalue())
    plt.close(figure)
    data = drawing.data.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    _write(directory / f"{name}.csv", data.encode())


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_bytes(content)
    temporary.replace(path)


def _svg(text: str, tips: list[str]) -> str:
    text = _PATH.sub(lambda m: f' d="{_LONG.sub(_cut, m[1])}"', text)
    for index, tip in enumerate(tips):
        text = text.replace(f'<g id="tip{index}">', f"<g><title>{escape(tip)}</title>", 1)
    return text


def _cut(match: re.Match) -> str:
    return match[1]
