"""Measurements on the learner: gradient cosine, displacement, and the stale against the fresh field.

Vectors are flat parameter vectors [d]; norms are RMS per coordinate unless said (section 3 of the
paper [stated]). A comparison without a previous gradient, with a zero or non-finite norm is
invalid: None, never 0.
"""

from __future__ import annotations

import math

from torch import Tensor


def rms(vector: Tensor) -> float:
    """Root mean square of a flat vector."""
    return (vector.norm() / math.sqrt(vector.numel())).item()


def cosine(a: Tensor, b: Tensor | None) -> float | None:
    """Cosine of two flat vectors, or None where it is not defined."""
    if b is None:
        return None
    norms = (a.norm() * b.norm()).item()
    if not (math.isfinite(norms) and norms > 0):
        return None
    return a.dot(b).item() / norms


def stale_feedback(stale_gradient: Tensor, fresh_gradient: Tensor, displacement: Tensor) -> dict[str, float | None]:
    """How the staleness of a batch bends the update (appendix A.9).

    At one learner state theta, `stale_gradient` comes from rollouts of the snapshot phi and
    `fresh_gradient` from rollouts of theta on the same prompts and with the same random numbers;
    `displacement` is theta - phi. An update goes against the gradient, so the stale part of it is
    fresh - stale: a positive feedback cosine means that it pushes on along the displacement
    (reinforcing), a negative one that it pulls back.
    """
    gap = fresh_gradient - stale_gradient
    return {
        "lag_displacement_rms": rms(displacement),
        "stale_gap_rms": rms(gap),
        "stale_feedback_cos": cosine(gap, displacement),
    }
