"""The stability boundary: where in (S, eta) runs stop surviving and start to collapse (law i).

Law (i) [stated]: the largest stable eta is about 1/S; the mean-field closure says 1/(S-1) (Proposition 2). Three
answers, each with its own assumptions:

* brackets of S eta and of kbar eta (kbar = (S-1)/2): no assumption; where a stable product is not below every collapsed
  one, the product law is refuted on this grid and the violating pair is named [derived];
* the feasible set of alpha in eta_max = exp(A) x^-alpha, x = S or S-1, if the boundary is sharp and a power law
  [derived];
* a probit boundary with run-to-run noise, P(collapse) = Phi((log eta + alpha log x - A)/sigma), its 95 %
  profile-likelihood set of alpha. Complete separation is the normal case here, so sigma has a floor [declared].

The verdict is on |alpha - 1| <= 0.1 in x = S [declared], judged on the hull of both sets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collapse_laws.laws.feasible import exponent_range
from collapse_laws.laws.observation import (
    NOT_DECIDED,
    Interval,
    Observation,
    clean,
    clean_interval,
    equivalence,
    hull,
    interval_text,
    stale,
)
from collapse_laws.laws.probit import LOG_RATIO, ProbitFit, fit_probit

ALPHA_MARGIN = 0.1  # declared
SCALES = ("S", "S-1")
KINDS = {
    "collapse": (("survived",), ("collapsed",)),
    "sustained": (("survived",), ("collapsed", "oscillating")),
}


@dataclass(frozen=True, slots=True)
class Bracket:
    """Largest stable and smallest collapsed value of a product with eta; None where there is no such run."""

    stable_max: float | None
    collapsed_min: float | None
    refuted: bool  # a stable product is not below a collapsed one
    violating_pair: tuple[dict[str, Any], dict[str, Any]] | None  # the stable run, the collapsed run


@dataclass(frozen=True, slots=True)
class Exponent:
    """The exponent alpha of eta_max ~ x^-alpha."""

    scale: str  # x: "S" or "S-1"
    feasible: Interval | None  # sharp boundary; None where no power law separates the runs
    estimate: float | None  # of the probit fit
    profile: Interval | None  # 95 % set of the probit fit
    sigma: float | None  # width of the boundary in log eta at the estimate
    sigma_at_floor: bool
    log_likelihood_at_one: float | None  # at alpha = 1


@dataclass(frozen=True, slots=True)
class Boundary:
    """All that is known of the boundary of one model."""

    kind: str  # collapse: survived | collapsed; sustained: survived | collapsed or oscillating
    stable: int
    unstable: int
    left_out: int  # runs of other labels, and S = 1
    product: Bracket  # of S eta
    lag_product: Bracket  # of kbar eta
    exponents: tuple[Exponent, ...]  # of S and of S-1
    form: str  # "1/S", "1/(S-1)" or not decided
    form_log_ratio: float | None  # log likelihood of 1/S less that of 1/(S-1)
    alpha: Interval | None  # hull of both sets in x = S
    verdict: str  # on law (i)
    reason: str
    margin: float = ALPHA_MARGIN

    def to_json(self) -> dict[str, Any]:
        """A dictionary of JSON values."""
        return dataclasses.asdict(self)


def fit_boundary(runs: Sequence[Observation], kind: str = "collapse") -> Boundary:
    """The boundary between the surviving and the unstable runs of one model and arm; any number of either, also
    none.
    """
    stable_labels, unstable_labels = KINDS[kind]
    used = [run for run in stale(runs) if run.label in stable_labels + unstable_labels]
    unstable = np.array([run.label in unstable_labels for run in used], dtype=bool)
    fits = {scale: _exponent(used, unstable, scale) for scale in SCALES}
    ratio, form = None, NOT_DECIDED
    if all(exponent.log_likelihood_at_one is not None for exponent, _ in fits.values()):
        ratio = fits["S"][0].log_likelihood_at_one - fits["S-1"][0].log_likelihood_at_one
        form = "1/S" if ratio > LOG_RATIO else "1/(S-1)" if ratio < -LOG_RATIO else NOT_DECIDED
    main = fits["S"][0]
    alpha = hull(main.feasible, main.profile)
    verdict, reason = _verdict(used, unstable, alpha)
    return Boundary(
        kind=kind,
        stable=int((~unstable).sum()),
        unstable=int(unstable.sum()),
        left_out=len(runs) - len(used),
        product=_bracket(used, unstable, lambda run: run.sync_interval * run.lr),
        lag_product=_bracket(used, unstable, lambda run: (run.sync_interval - 1) / 2 * run.lr),
        exponents=tuple(exponent for exponent, _ in fits.values()),
        form=form,
        form_log_ratio=clean(ratio),
        alpha=clean_interval(alpha),
        verdict=verdict,
        reason=reason,
    )


def _bracket(runs: Sequence[Observation], unstable: np.ndarray, product) -> Bracket:
    stable_runs = [run for run, bad in zip(runs, unstable, strict=True) if not bad]
    bad_runs = [run for run, bad in zip(runs, unstable, strict=True) if bad]
    top = max(stable_runs, key=product, default=None)
    bottom = min(bad_runs, key=product, default=None)
    refuted = top is not None and bottom is not None and product(top) >= product(bottom) * (1 - 1e-9)
    return Bracket(
        stable_max=None if top is None else clean(product(top)),
        collapsed_min=None if bottom is None else clean(product(bottom)),
        refuted=refuted,
        violating_pair=(top.as_point(), bottom.as_point()) if refuted else None,
    )


def _exponent(runs: Sequence[Observation], unstable: np.ndarray, scale: str) -> tuple[Exponent, ProbitFit | None]:
    offset = SCALES.index(scale)
    x = np.log([run.sync_interval - offset for run in runs])
    eta = np.log([run.lr for run in runs])
    feasible = exponent_range(x, eta, unstable)
    fit = fit_probit(x, eta, unstable)
    return Exponent(
        scale=scale,
        feasible=clean_interval(feasible),
        estimate=None if fit is None else clean(fit.alpha),
        profile=None if fit is None else clean_interval(fit.interval),
        sigma=None if fit is None else clean(fit.sigma),
        sigma_at_floor=fit is not None and fit.at_floor,
        log_likelihood_at_one=None if fit is None else clean(fit.log_likelihood_at_one),
    ), fit


def _verdict(runs: Sequence[Observation], unstable: np.ndarray, alpha: Interval | None) -> tuple[str, str]:
    if not runs:
        return NOT_DECIDED, "No run of this model survived or collapsed."
    if unstable.all() or not unstable.any():
        return (
            NOT_DECIDED,
            f"All {len(runs)} runs {'collapsed' if unstable.all() else 'survived'}: no boundary is crossed.",
        )
    if len({run.sync_interval for run in runs}) < 2:
        return NOT_DECIDED, "All runs share one S, so nothing is known of the exponent."
    verdict = equivalence(alpha, 1.0, ALPHA_MARGIN)
    return (
        verdict,
        f"alpha lies in {interval_text(alpha)}; the law asks for 1 within {ALPHA_MARGIN:g}.",
    )
