"""The fewest atoms of one head within eps of a target: certified from above, proved from below."""

from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..certify import Certificate
from ..heads import Head, HeadSum
from ._box import Box
from ._fit import Fit, check_count, fit_many
from ._fit_starts import product_atoms
from ._function import Function, Target
from ._fuse import Fusion, fuse
from ._lattice import from_keys
from ._line_bound import line_certificate
from ._robust import robust_certificate
from ._sup_error import Interval, sup_error

FUSE_SECONDS = 10
MOST = 16  # atoms tried by default when the plain product is larger or unknown


@dataclass(frozen=True)
class CurvePoint:
    """What the search knows about one number of atoms.

    Attributes:
        num_atoms: atoms allowed.
        error: best sup-error found, an estimate unless ``interval`` is certified.
        lane_median, lane_best: of the errors of all starts at the search points, before the polish.
        starts, diverged: how many starts ran, and how many met a non-finite number.
        interval: certified enclosure of ``error``, where one was needed.
    """

    num_atoms: int
    error: float
    lane_median: float
    lane_best: float
    starts: int
    diverged: int
    interval: Interval | None = None


@dataclass(frozen=True)
class AtomBracket:
    """``lower <= fewest atoms within eps <= upper``.

    Attributes:
        eps, box: the question.
        lower: proved by ``lower_certificate``; ``lower_method`` is "line crossings" (finite boxes), "robust"
            (all of R^d) or "trivial" (1, no certificate).
        upper: proved by ``upper_certificate`` (of ``interval``, or of exact fusion on all of R^d); by algebra
            alone for the plain product of heads on all of R^d whose weights are not all equal; only an
            estimate when not ``upper_certified``; ``None`` if no number of atoms tried was enough.
        head: a head with ``upper`` atoms.
        curve: best error for every number of atoms tried.
    """

    eps: float
    box: Box
    lower: int
    lower_method: str
    lower_certificate: Certificate | None = field(repr=False)
    upper: int | None
    upper_certified: bool
    upper_certificate: Certificate | None = field(repr=False)
    head: Head | None = field(repr=False)
    interval: Interval | None = field(repr=False)
    curve: tuple[CurvePoint, ...] = field(repr=False)

    @property
    def closed(self) -> bool:
        """Whether the bracket is a single number, both ends proved."""
        return self.upper_certified and self.lower == self.upper

    def __repr__(self) -> str:
        if self.upper is None:
            inside = f">= {self.lower}, no upper end found"
        elif self.closed:
            inside = f"= {self.lower}, certified"
        else:
            label = "certified" if self.upper_certified else "upper end an estimate"
            inside = f"in [{self.lower}, {self.upper}], {label}"
        return f"AtomBracket(atoms within {self.eps:g} on {self.box!r} {inside})"


def minimal_atoms(
    target: Target,
    eps: float,
    box: Box,
    *,
    key: Any = None,
    starts: int = 64,
    max_atoms: int | None = None,
) -> AtomBracket:
    """Bracket the fewest atoms of one head ``F`` with ``sup over the box of |F - target| <= eps``.

    Upper end: a fit whose ``sup_error`` is certified below eps. Lower end: on a finite box, levels that
    the target crosses along parallel lines; on all of R^d (``Box(math.inf, d)``), the components of the
    limits at infinity (``robust_lower_bound``), and the upper end is then an exact fusion.

    Arguments:
        target: a ``Head`` or ``HeadSum``; a callable gives an upper end that is an estimate.
        eps: tolerance, positive and finite.
        box: where; an infinite radius means everywhere.
        key: PRNG key or int of the starts.
        starts: starts for each number of atoms.
        max_atoms: most atoms to try; by default the plain product, at most 16.

    Raises:
        ValueError: eps, starts or max_atoms out of range, a target that does not fit the box, or a
            callable on an infinite box.

    >>> from attnlab.heads import sigmoid_sum
    >>> minimal_atoms(sigmoid_sum(1), 0.1, Box(4, 1), starts=8)
    AtomBracket(atoms within 0.1 on Box(|q_j| <= 4, dim=1) = 2, certified)
    """
    if isinstance(eps, bool) or not isinstance(eps, int | float | np.number) or not 0 < eps < np.inf:
        raise ValueError(f"eps must be positive and finite, got {eps!r}.")
    starts = check_count("starts", starts)
    function = Function(target, box)
    product = product_atoms(function)
    size = MOST if product is None else len(product[2])
    if max_atoms is not None:
        size = min(check_count("max_atoms", max_atoms), size if product is not None else max_atoms)
    elif product is not None:
        size = min(size, MOST)
    if not box.finite:
        return _everywhere(function, float(eps), product)
    certificate = line_certificate(function, float(eps), box)
    lower = int(certificate.claim["atoms"]) if certificate else 1
    counts = list(range(lower, size + 1))
    fits = fit_many(target, counts, box, key=key, starts=starts, polished=1) if counts else []
    fits = _refined(target, box, float(eps), fits, key, starts)
    curve, chosen = [], None
    for fit in fits:
        interval = None
        if chosen is None and fit.sup_error_estimate <= eps:
            interval = _within(target, fit, float(eps), box)
            if interval is None or interval.hi <= eps or not interval.certified:
                chosen = (fit, interval)
        curve.append(_curve_point(fit, interval))
    method = "line crossings" if certificate else "trivial"
    if chosen is None:
        return AtomBracket(
            float(eps), box, lower, method, certificate, None, False, None, None, None, tuple(curve)
        )
    fit, interval = chosen
    proved = interval is not None and interval.certified and interval.hi <= eps
    return AtomBracket(
        float(eps),
        box,
        lower,
        method,
        certificate,
        fit.head.num_atoms if proved else fit.num_atoms,
        proved,
        interval.certificate if interval is not None and proved else None,
        fit.head,
        interval,
        tuple(curve),
    )


def _refined(target: Target, box: Box, eps: float, fits: list[Fit], key: Any, starts: int) -> list[Fit]:
    """Spend more on the numbers of atoms whose error is just above eps: more lanes polished, and warm
    starts from both neighbours."""
    out = list(fits)
    for i, fit in enumerate(fits):
        if eps < fit.sup_error_estimate < 1.25 * eps:
            near = [out[j] for j in (i - 1, i + 1) if 0 <= j < len(out)]
            again = fit_many(target, [fit.num_atoms], box, key=key, starts=starts, polished=4, warm=near)[0]
            if again.sup_error_estimate < fit.sup_error_estimate:
                out[i] = again
        if out[i].sup_error_estimate <= eps:
            break
    return out


def _within(target: Target, fit: Fit, eps: float, box: Box) -> Interval:
    """Certify, with a gap small enough to stay below eps where the estimate allows it."""
    room = eps / fit.sup_error_estimate - 1 if fit.sup_error_estimate > 0 else 1.0
    return sup_error(target, fit.head, box, float(np.clip(0.5 * room, 1e-4, 0.01)))


def _curve_point(fit: Fit, interval: Interval | None) -> CurvePoint:
    finite = fit.lane_errors[np.isfinite(fit.lane_errors)]
    median, best = (float(np.median(finite)), float(finite.min())) if len(finite) else (0.0, 0.0)
    return CurvePoint(
        fit.num_atoms, fit.sup_error_estimate, median, best, len(fit.lane_errors), fit.diverged, interval
    )


def _everywhere(function: Function, eps: float, product: Any) -> AtomBracket:
    """All of R^d: nothing is fitted; fusions are exact."""
    if function.heads is None:
        raise ValueError("box has infinite radius; that needs a Head or HeadSum as target.")
    heads = function.target.heads if isinstance(function.target, HeadSum) else [function.target]
    lower = robust_certificate(list(heads), eps, norm=np.inf)
    upper = int(np.prod([len(h[2]) for h in function.heads])) if product is None else len(product[2])
    head, certificate = None, None
    if product is not None:
        keys, values, logs = product
        values = values[:, 0] if function.scalar else values
        head = Head(*(jnp.asarray(x, jnp.result_type(float)) for x in (keys, values, logs)))
    exact = _exact_fusion(function)
    if exact is not None:
        upper, head, certificate = exact.upper, exact.head.to_head(), exact.certificate.upper
    atoms = int(lower.claim["atoms"])
    return AtomBracket(eps, function.box, atoms, "robust", lower, upper, True, certificate, head, None, ())


def _exact_fusion(function: Function) -> Fusion | None:
    """Exact fusion of heads with equal weights; other weights are exponentials of floats, not rational."""
    heads = function.heads or []
    if any(np.ptp(logs) > 0 for _, _, logs in heads):
        return None
    keys, values = [k.tolist() for k, _, _ in heads], [v.tolist() for _, v, _ in heads]
    if function.scalar:
        values = [[row[0] for row in v] for v in values]
    ones = [[1] * len(k) for k in keys]
    try:
        return fuse(from_keys(keys, ones, values, exact_floats=True), time_limit=FUSE_SECONDS)
    except ValueError:  # too large to write out
        return None
