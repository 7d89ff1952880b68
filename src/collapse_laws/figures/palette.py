"""The figures' colours, each with its twin for dark pages; free of matplotlib, so that the page can read it.

The learning-rate scale is viridis at sixteen steps, cut differently for light and dark grounds so
that both stay legible; categories are the Okabe-Ito colours, darkened for light grounds and
lightened for dark ones.
"""

from __future__ import annotations

INK, MUTED, GRID, BAND = "#1f2430", "#6a7280", "#d9dde3", "#e9edf5"
TWINS = {INK: "#e8eaed", MUTED: "#9aa3af", GRID: "#3a414d", BAND: "#262d3a"}
CATEGORIES = (
    ("#0072b2", "#56b4e9"),
    ("#d55e00", "#f0894a"),
    ("#007a5a", "#1fc496"),
    ("#b0588f", "#e08cc0"),
    ("#946a00", "#e69f00"),
    ("#4b5563", "#b7bec9"),
)
RATES = (
    ("#440154", "#2e6f8e"),
    ("#471365", "#29798e"),
    ("#482475", "#25838e"),
    ("#46337f", "#228d8d"),
    ("#414287", "#1f978b"),
    ("#3b518b", "#1fa187"),
    ("#355e8d", "#25ac82"),
    ("#2f6b8e", "#32b67a"),
    ("#2a778e", "#44bf70"),
    ("#26828e", "#5ac864"),
    ("#218f8d", "#73d056"),
    ("#1f9a8a", "#8ed645"),
    ("#21a685", "#aadc32"),
    ("#2db27d", "#c8e020"),
    ("#3fbc73", "#e5e419"),
    ("#58c765", "#fde725"),
)


def dark_twins() -> dict[str, str]:
    """Colour on a light page -> colour on a dark page, for every colour that a figure may use."""
    return {**TWINS, **dict(CATEGORIES), **dict(RATES)}
