"""What a study says of the two laws: sentences for readers, macros for LaTeX, metrics for DVC, from laws.json alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from collapse_laws.results import StudyResults
from collapse_laws.tables import counts
from collapse_laws.wording import SCALES, WORDS, interval, listing, number, plural

LAWS = {
    "i": "Law (i): the stability boundary lies at constant S x learning rate",
    "ii": "Law (ii): collapse comes at a constant sum of learning rates, whatever S",
}
SAYS = {"holds": "Holds", "refuted": "Refuted", "not decided by these data": "Not decided"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one law in one group (arm, model): a word and two sentences."""

    law: str  # i | ii
    arm: str
    model: str
    verdict: str  # Holds | Refuted | Not decided | Not fitted
    sentences: str


def verdicts(results: StudyResults) -> list[Verdict]:
    """Both laws for every group, in the order of the study."""
    found = []
    for law, speak in (("i", _boundary), ("ii", _clock)):
        for arm, model in results.groups:
            laws = results.group_laws(arm, model)
            if laws:
                word = SAYS[laws["boundary" if law == "i" else "clock"]["verdict"]]
                found.append(Verdict(law, arm, model, word, speak(laws)))
            else:
                text = "Nothing has been fitted to this group. Run `collapse-laws laws`."
                found.append(Verdict(law, arm, model, "Not fitted", text))
    return found


def _boundary(laws: dict[str, Any]) -> str:
    boundary = laws["boundary"]
    product = boundary["product"]
    low, high = product["stable_max"], product["collapsed_min"]
    if low is None and high is None:
        first = "No run with S > 1 survived or collapsed"
    elif high is None:
        first = f"No run collapsed, and runs survived up to S x lr = {number(low)}"
    elif low is None:
        first = f"No run survived, and runs collapsed from S x lr = {number(high)}"
    elif product["refuted"]:
        first = (
            f"No single S x lr separates the {boundary['stable']} surviving from the {boundary['unstable']} collapsed "
            f"runs: one survived at {number(low)}, one collapsed at {number(high)}"
        )
    else:
        first = f"Runs survived up to S x lr = {number(low)} and collapsed from {number(high)}"
    return f"{first}. {_because(boundary)}{_sustained(laws)}"


def _because(boundary: dict[str, Any]) -> str:
    ends = boundary["alpha"]
    if ends is None:
        return boundary["reason"]
    if ends[0] is None and ends[1] is None:
        return "These runs set no bound on the exponent alpha."
    return f"The exponent alpha {_place(ends, 1.0, boundary['margin'])}."


def _place(ends: Any, asked: float, margin: float) -> str:
    """Where an exponent lies, and whether what the law asks, `asked` within `margin`, lies there too."""
    low, high = (float("-inf") if ends[0] is None else ends[0]), (float("inf") if ends[1] is None else ends[1])
    if low == -high == float("-inf"):
        return f"is not bounded (asked: {number(asked)})"
    if low <= asked <= high:
        where = "which is inside"
    elif low <= asked + margin and high >= asked - margin:
        where = f"which is outside by less than the margin of {number(margin)}"
    else:
        where = "which is outside"
    return f"lies in {interval(ends)} (asked: {number(asked)}, {where})"


def _sustained(laws: dict[str, Any]) -> str:
    """A clause on the other boundary, where oscillating runs make one that differs."""
    other = laws.get("boundary_sustained") or {}
    if not laws["counts"].get("oscillating") or not other or other["alpha"] is None:
        return ""
    return (
        f" Counting the {plural(laws['counts']['oscillating'], 'oscillating run')} as unstable too, alpha "
        f"{_place(other['alpha'], 1.0, other['margin'])}: {SAYS[other['verdict']].lower()}."
    )


def _clock(laws: dict[str, Any]) -> str:
    clock = laws["clock"]
    if not clock["runs"]:
        text = "No run with S > 1 collapsed for good, so there is no clock to read"
        drops = laws.get("clock_first_drop") or {}
        if drops.get("runs"):
            return (
                f"{text}. For the first drops of {plural(drops['runs'], 'run')}, b lies in {interval(drops['b'])} and "
                f"c in {interval(drops['c'])} ({SAYS[drops['verdict']].lower()})."
            )
        return f"{text}. Nothing dropped either."
    c2 = clock["c2"]
    first = f"The onset intervals of {plural(clock['runs'], 'collapsed run')} " + (
        f"share a budget c2 in {interval(c2, '(]')}" if c2 else "share no common budget c2"
    )
    b, c = clock["b"], clock["c"]
    if b is None or c is None:
        return f"{first}. They allow no statement on the exponents b and c."
    return (
        f"{first}. The exponent of 1/lr {_place(b, 1.0, clock['margin'])}, that of S {_place(c, 0.0, clock['margin'])}."
    )


def not_run_text(results: StudyResults) -> str:
    """One sentence on what was planned and not run, and on what the labels other than two say."""
    found = counts(results)
    missing = found["not_run"]
    total = len(results.cells)
    if results.published:
        return f"All {total} published runs are in; no run was made here."
    text = (
        f"All {total} planned cells were run." if not missing else f"{missing} of {total} planned cells were not run."
    )
    rest = [
        f"{found[label]} {WORDS[label]}"
        for label in ("collapsed", "oscillating", "survived", "undecided", "no_signal", "failed")
        if found[label]
    ]
    return f"{text} Outcomes: {listing(rest)}." if rest else f"{text} There is no outcome yet."


def metrics(results: StudyResults) -> dict[str, Any]:
    """Headline numbers as nested plain values, for metrics.json."""
    groups = {}
    for arm, model in results.groups:
        laws = results.group_laws(arm, model)
        body: dict[str, Any] = {"cells": counts(results, arm, model)}
        if laws:
            boundary, clock = laws["boundary"], laws["clock"]
            body["boundary"] = {
                "verdict": boundary["verdict"],
                "stable_max": boundary["product"]["stable_max"],
                "collapsed_min": boundary["product"]["collapsed_min"],
                **_ends("alpha", boundary["alpha"]),
            }
            body["clock"] = {
                "verdict": clock["verdict"],
                "runs": clock["runs"],
                **_ends("c2", clock["c2"]),
                **_ends("b", clock["b"]),
                **_ends("c", clock["c"]),
            }
        groups[f"{arm}_{model}"] = body
    return {"study": results.name, "scale": results.scale, "groups": groups}


def _ends(name: str, ends: Any) -> dict[str, float | None]:
    low, high = ends if ends is not None else (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


def macros(results: StudyResults) -> str:
    r"""LaTeX macros of the headline numbers, one \newcommand a line:
    \<study><arm><model><number>."""
    lines = [f"% Headline numbers of the study {_comment(results.name)}, {SCALES[results.scale]}."]
    for group, body in metrics(results)["groups"].items():
        flat = {f"cells {k}": v for k, v in body["cells"].items()}
        for part in ("boundary", "clock"):
            flat |= {f"{part} {key}": value for key, value in body.get(part, {}).items()}
        for key, value in flat.items():
            name = _macro(f"{results.name} {group} {key}")
            text = value if isinstance(value, str) else _tex_number(value)
            lines.append(f"\\newcommand{{\\{name}}}{{{text}}}")
    return "\n".join(lines) + "\n"


def _macro(words: str) -> str:
    """Letters only: 'published vanilla_llama1b alpha low' -> 'publishedVanillaLlamaoneBAlphaLow'."""
    digits = dict(zip("0123456789", "zero one two three four five six seven eight nine".split(), strict=True))
    spelled = "".join(f" {digits[c]} " if c in digits else c for c in words)
    first, *rest = [word for word in re.split(r"[^A-Za-z]+", spelled) if word]
    return first + "".join(word[0].upper() + word[1:] for word in rest)


def _tex_number(value: float | None) -> str:
    text = number(value)
    if "e" not in text:
        return "--" if text == "-" else text
    mantissa, exponent = text.split("e")
    return f"\\ensuremath{{{mantissa}\\times 10^{{{exponent}}}}}"


def _comment(text: str) -> str:
    return " ".join(text.split())
