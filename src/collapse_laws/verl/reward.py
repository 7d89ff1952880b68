"""The one 0/1 reward of all families at paper scale, loaded by verl from this file.

The paper: "the same rule-based checker as in training" [stated]; which one is not said. Declared:
verl's own `math_reward` (the last \\boxed answer, string-normalised, compared exactly) for every
set, so that no family trains on the -1/+1 scores of `math_dapo`. Where a set's gold is in a form
that no answer takes (4.5e33), the prepared rows carry other forms in `golds`, and any of them is
right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EXACT_SOURCES = ("chain-arithmetic",)  # answers without a box: the whole response is compared


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    **_: Any,
) -> dict[str, float]:
    """1.0 for a right answer, else 0.0, as verl's reward loop takes it: `score` trains, `acc` is validated."""
    if data_source in EXACT_SOURCES:
        score = float(solution_str.strip() == ground_truth)
    else:
        from verl.utils.reward_score import math_reward

        given = (extra_info or {}).get("golds")
        golds = [ground_truth] if given is None else list(given)
        score = max(float(math_reward.compute_score(solution_str, gold)) for gold in golds)
    return {"score": score, "acc": score}
