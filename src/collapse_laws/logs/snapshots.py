"""Mean reward of each rollout batch from records that may straddle two of them.

Updates S*M to S*M+S-1 learn from rollouts of snapshot M, so a record inside one cycle is an observation of that
snapshot, and one across a synchronisation is a mixture with known weights. Where every snapshot has a record in which
it outweighs the others (at least two thirds), the mixtures are solved by least squares [derived, exact if the reward is
constant within a cycle]; otherwise each snapshot gets the mean of the records, weighted by the updates they share with
it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solveh_banded
from scipy.stats import chi2, norm

DOMINANT = 2 / 3


@dataclass(frozen=True, slots=True)
class SnapshotMeans:
    """Snapshots that the log shows, and how exactly."""

    index: np.ndarray  # [snapshots] M
    reward: np.ndarray  # [snapshots]
    se: np.ndarray  # [snapshots] from the scatter of the records within a cycle, NaN where it cannot be told
    records: np.ndarray  # [snapshots] records that show this snapshot
    how: str  # exact | unmixed | blurred


def snapshot_means(first: np.ndarray, last: np.ndarray, value: np.ndarray, sync_interval: int) -> SnapshotMeans:
    """Means per snapshot from records over the updates first..last (from 0, included). Records without a value are left
    out.

    A snapshot all of whose records are NaN stays in the result as NaN.
    """
    low, high = first // sync_interval, last // sync_interval
    inside = low == high
    if np.all(inside):
        return _grouped(low, last - first + 1, value, "exact", sync_interval)
    if np.any(high - low > 1):
        return _grouped((low + high + 1) // 2, np.ones(value.size), value, "blurred", sync_interval)
    boundary = high * sync_interval
    late = np.where(inside, 1.0, (last - boundary + 1) / (last - first + 1))
    main = np.where(late >= 0.5, high, low)
    share = np.where(late >= 0.5, late, 1 - late)
    known = np.isfinite(value)
    solvable = np.unique(main[known & (share >= DOMINANT - 1e-9)])
    if solvable.size and np.array_equal(solvable, np.unique(main)):
        return _unmixed(low, high, late, value, solvable)
    return _grouped(main, share, value, "blurred", sync_interval)


def _grouped(index: np.ndarray, weight: np.ndarray, value: np.ndarray, how: str, sync_interval: int) -> SnapshotMeans:
    snapshots, place = np.unique(index, return_inverse=True)
    known = np.isfinite(value)
    weight = np.where(known, weight, 0.0)
    filled = np.where(known, value, 0.0)
    total = np.bincount(place, weight, snapshots.size)
    count = np.bincount(place, known, snapshots.size)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(place, weight * filled, snapshots.size) / total
        scatter = np.bincount(place, known * (filled - mean[place]) ** 2, snapshots.size) / (count - 1)
        return SnapshotMeans(snapshots, mean, _standard_error(scatter, count, mean), count.astype(int), how)


def _standard_error(scatter: np.ndarray, count: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """One scatter for the whole run, the median over its snapshots, so that a drop inside a cycle does not hide
    itself.
    """
    several = count >= 2
    if np.count_nonzero(several) < 3:
        return _from_neighbours(mean)
    degrees = np.median(count[several]) - 1
    variance = np.median(scatter[several]) * degrees / chi2.median(degrees)
    return np.where(count > 0, np.sqrt(variance / np.maximum(count, 1)), np.nan)


def _from_neighbours(mean: np.ndarray) -> np.ndarray:
    """The scatter of single records about their neighbours: second differences, which no steady trend enters."""
    known = mean[np.isfinite(mean)]
    if known.size < 8:
        return np.full(mean.shape, np.nan)
    bend = known[2:] - 2 * known[1:-1] + known[:-2]
    return np.full(mean.shape, np.median(np.abs(bend)) / (norm.ppf(0.75) * np.sqrt(6)))


def _unmixed(
    low: np.ndarray, high: np.ndarray, late: np.ndarray, value: np.ndarray, index: np.ndarray
) -> SnapshotMeans:
    """Least squares for x in value = (1-late) x_low + late x_high, over the snapshots in `index`."""
    rows = np.isfinite(value)
    low, high, late, value = low[rows], high[rows], late[rows], value[rows]
    a, b = np.searchsorted(index, low), np.searchsorted(index, high)
    has_low = (a < index.size) & (index[np.minimum(a, index.size - 1)] == low)
    has_high = (b < index.size) & (index[np.minimum(b, index.size - 1)] == high)
    early = np.where(has_low & (low != high), 1 - late, 0.0)
    late = np.where(has_high, late, 0.0)
    total = early + late
    early, late = early / total, late / total
    a, b = np.where(has_low, a, 0), np.where(has_high, b, 0)
    diagonal = np.bincount(a, early**2, index.size) + np.bincount(b, late**2, index.size)
    off = np.bincount(b, early * late, index.size)  # couples b-1 and b: straddled snapshots are neighbours
    right = np.bincount(a, early * value, index.size) + np.bincount(b, late * value, index.size)
    reward = solveh_banded(np.stack([off, diagonal]), right) if index.size > 1 else right / diagonal
    if value.min() >= 0:
        reward = np.maximum(reward, 0.0)
    if value.max() <= 1:
        reward = np.minimum(reward, 1.0)
    shown = np.bincount(np.where(late >= early, b, a), minlength=index.size)
    return SnapshotMeans(index, reward, _from_neighbours(reward), shown, "unmixed")
