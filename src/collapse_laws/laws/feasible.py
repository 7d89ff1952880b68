"""Sets of parameters that satisfy every constraint of a noiseless law: no likelihood, no asymptotics.

Boundary: log eta < A - alpha log x at stable runs, >= at collapsed ones; eliminating A leaves an interval of alpha.
Clock: log low < a - b log eta + c log S <= log high for each onset interval; eliminating a leaves half-planes in (b,
c), whose intersection is a convex polygon. Both eliminations are exact solutions of the linear programs min/max alpha,
b, c [derived]. Every resulting constraint is strict, so the sets are open; their ends are printed as if closed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

Floats = NDArray[np.float64]
Bounds = tuple[float, float]

BOX = 50.0  # |b|, |c| searched; a set that reaches it is unbounded
_TINY = 1e-11


@dataclass(frozen=True, slots=True)
class ClockSet:
    """What the onset intervals alone say of the clock. None: no parameter satisfies all constraints."""

    c2: Bounds | None  # (low, high] of t*eta
    b: Bounds | None  # infinite ends where unbounded
    c: Bounds | None
    b_at_c0: Bounds | None
    c_at_b1: Bounds | None
    polygon: tuple[tuple[float, float], ...]
    slack: float | None  # widening of log t at which a line passes; 0 if one does


def exponent_range(log_x: Floats, log_lr: Floats, unstable: NDArray[np.bool_]) -> Bounds | None:
    """All alpha for which some sharp boundary eta_max = exp(A) x^-alpha separates the runs.

    Arrays of one length: log x, log eta, and whether the run is on the far side. Returns infinite ends where nothing
    bounds alpha, and None where no power law separates the runs (or there is no run).
    """
    if not log_x.size:
        return None
    stable_x, stable_lr = log_x[~unstable], log_lr[~unstable]
    far_x, far_lr = log_x[unstable], log_lr[unstable]
    run = (far_x[None, :] - stable_x[:, None]).ravel()  # alpha * run > rise
    rise = (stable_lr[:, None] - far_lr[None, :]).ravel()
    return _ray_intersection(run, rise)


def clock_set(low: Floats, high: Floats, lr: Floats, sync_interval: Floats) -> ClockSet:
    """The feasible set of (b, c) in log t = a - b log eta + c log S, and of c2 at b = 1, c = 0.

    Arrays of one length: onset in (low, high] learner updates, learning rate, S. An empty input leaves all None.
    """
    if not low.size:
        return ClockSet(None, None, None, None, None, (), None)
    c2 = (float(np.max(low * lr)), float(np.min(high * lr)))
    log_lr, log_s = np.log(lr), np.log(sync_interval)
    with np.errstate(divide="ignore"):
        log_low, log_high = np.log(low), np.log(high)  # low = 0: no constraint from below
    bounded = np.flatnonzero(np.isfinite(log_low))
    normal_b = (log_lr[None, :] - log_lr[bounded][:, None]).ravel()  # b*normal_b + c*normal_c > offset
    normal_c = (log_s[bounded][:, None] - log_s[None, :]).ravel()
    offset = (log_low[bounded][:, None] - log_high[None, :]).ravel()
    polygon = _intersect(normal_b, normal_c, offset)
    consistent = polygon is not None
    return ClockSet(
        c2=c2 if c2[0] < c2[1] * (1 - _TINY) else None,
        b=_extent(polygon[:, 0]) if consistent else None,
        c=_extent(polygon[:, 1]) if consistent else None,
        b_at_c0=_ray_intersection(normal_b, offset),
        c_at_b1=_ray_intersection(normal_c, offset - normal_b),
        polygon=tuple((float(b), float(c)) for b, c in polygon) if consistent else (),
        slack=0.0 if consistent else _slack(log_low, log_high, log_lr, log_s),
    )


def _ray_intersection(slope: Floats, offset: Floats) -> Bounds | None:
    """All x with slope * x > offset for every pair; None where there is none."""
    flat = np.abs(slope) < _TINY
    if (offset[flat] >= -_TINY).any():
        return None
    up, down = ~flat & (slope > 0), ~flat & (slope < 0)
    low = float(np.max(offset[up] / slope[up], initial=-np.inf))
    high = float(np.min(offset[down] / slope[down], initial=np.inf))
    return (low, high) if low < high - _TINY else None


def _intersect(normal_b: Floats, normal_c: Floats, offset: Floats) -> Floats | None:
    """Corners [n, 2] of the intersection of half-planes with the search box, or None where it is empty."""
    length = np.hypot(normal_b, normal_c)
    flat = length < _TINY
    if (offset[flat] >= -_TINY).any():
        return None
    planes = np.column_stack([normal_b, normal_c, offset])[~flat] / length[~flat, None]
    _, group = np.unique(np.round(planes[:, :2], 9), axis=0, return_inverse=True)
    strictest = np.lexsort((-planes[:, 2], group.ravel()))
    planes = planes[strictest][np.r_[True, np.diff(group.ravel()[strictest]) > 0]] if len(planes) else planes
    polygon = np.array([[-BOX, -BOX], [BOX, -BOX], [BOX, BOX], [-BOX, BOX]])
    for plane in planes:
        polygon = _clip(polygon, plane)
        if len(polygon) < 3:
            return None
    polygon = polygon[np.abs(polygon - np.roll(polygon, 1, axis=0)).max(axis=1) > 1e-9]
    if len(polygon) < 3:
        return None
    polygon = np.where(np.abs(polygon) < _TINY, 0.0, polygon)
    b, c = polygon.T
    area = 0.5 * abs(np.dot(b, np.roll(c, -1)) - np.dot(c, np.roll(b, -1)))
    return polygon if area > _TINY else None


def _clip(polygon: Floats, plane: Floats) -> Floats:
    """The part of a convex polygon where normal . point >= offset."""
    height = polygon @ plane[:2] - plane[2]
    if (height >= 0).all():
        return polygon
    corners = []
    for at in range(len(polygon)):
        following = (at + 1) % len(polygon)
        if height[at] >= 0:
            corners.append(polygon[at])
        if (height[at] >= 0) != (height[following] >= 0):
            share = height[at] / (height[at] - height[following])
            corners.append(polygon[at] + share * (polygon[following] - polygon[at]))
    return np.array(corners).reshape(-1, 2)


def _extent(values: Floats) -> Bounds:
    low, high = float(values.min()), float(values.max())
    return (
        -np.inf if low <= -BOX * (1 - 1e-9) else low,
        np.inf if high >= BOX * (1 - 1e-9) else high,
    )


def _slack(log_low: Floats, log_high: Floats, log_lr: Floats, log_s: Floats) -> float:
    """Least e such that some line lies in (log low - e, log high + e] at every run: a linear program."""
    line = np.column_stack([np.ones_like(log_lr), -log_lr, log_s])
    finite = np.isfinite(log_low)
    widening = -np.ones((len(line), 1))
    rows = np.vstack([np.hstack([line, widening]), np.hstack([-line, widening])[finite]])
    limits = np.r_[log_high, -log_low[finite]]
    free = (None, None)
    result = linprog([0, 0, 0, 1], A_ub=rows, b_ub=limits, bounds=[free, free, free, (0, None)])
    return float(result.fun)
