"""Kind ``sup-error``: how far one head is from a sum of heads anywhere on a box.

Subject: ``head_keys`` (m, d), ``head_values`` (m, p), ``head_log_weights`` (m,); the same names with
``target_`` for the atoms of all heads of the sum one after the other, ``target_sizes`` (H,) atoms of
each; ``radius`` (d,): the box |q_j| <= radius_j. Witness: ``order``, the degree of the Taylor
polynomials, and ``point`` (d,), where the error is large. Claim: ``lower <= sup |F - W| <= upper``, the
largest absolute coordinate for vector values.

The checker repeats the branch and bound: a box is settled once its enclosure of F - W stays within
``upper``, otherwise it is halved. Nothing about the subdivision is taken from the file.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._balls import INFLATE, TINY, UNIT
from ._errors import InvalidWitness
from ._head_series import HeadSeries, polynomial_range
from ._head_series_arb import ArbHead, arb_bounds
from ._power_series import exponents
from ._verdict import Verdict

CHUNK = 1024
BUDGET, ARB_BUDGET = 6_000_000, 200_000  # boxes; the checker stops there and proves what it then has
LARGEST_ORDER, LARGEST_TABLE = 16, 5_000
WIDEST = 1.2  # above this max_i s_i a Taylor polynomial is not worth computing

Named = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Atoms:
    """One head: keys (n, d), values (n, p), log-weights (n,), absent atoms dropped."""

    keys: np.ndarray
    values: np.ndarray
    logs: np.ndarray


class Difference:
    """One coordinate of F - W with enclosures on boxes."""

    def __init__(self, head: Atoms, target: list[Atoms], coordinate: int, order: int):
        self.parts = [
            (1.0, HeadSeries(head.keys, head.values[:, coordinate], head.logs, order)),
            *((-1.0, HeadSeries(t.keys, t.values[:, coordinate], t.logs, order)) for t in target),
        ]
        self.terms = exponents(head.keys.shape[1], order)

    def bounds(
        self, centre: np.ndarray, half: np.ndarray, goal: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Bounds (boxes,) on F - W over boxes (boxes, d), and (boxes, d) what to halve; boxes already
        within ``goal`` by interval softmax are not refined."""
        ranges = [(sign, part.ranges(centre, half)) for sign, part in self.parts]
        low = np.sum([r.low if sign > 0 else -r.high for sign, r in ranges], axis=0)
        high = np.sum([r.high if sign > 0 else -r.low for sign, r in ranges], axis=0)
        share = np.max([r.share for _, r in ranges], axis=0)
        pad = 4 * UNIT * len(ranges) * (np.abs(low) + np.abs(high)) + TINY
        low, high = low - pad, high + pad
        spread = np.max([r.spread for _, r in ranges], axis=0)
        fine = np.flatnonzero((np.maximum(high, -low) > goal) & (spread < WIDEST))
        if len(fine):
            inner_low, inner_high, inner_share = self._taylor(centre[fine], half[fine], share[fine])
            low[fine] = np.maximum(low[fine], inner_low)
            high[fine] = np.minimum(high[fine], inner_high)
            share[fine] = inner_share
        return low, high, share

    def at(self, point: np.ndarray) -> tuple[float, float]:
        """Bounds on F - W at one point."""
        low, high, _ = self.bounds(point[None], np.zeros((1, len(point))), -1.0)
        return float(low[0]), float(high[0])

    def _taylor(
        self, centre: np.ndarray, half: np.ndarray, share: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        total = np.zeros((len(self.terms.table), len(centre)))
        error, remainder, sizes = np.zeros(len(centre)), np.zeros(len(centre)), np.zeros(len(centre))
        for sign, part in self.parts:
            poly = part.polynomial(centre, half)
            total += sign * poly.coefficients
            error, remainder = error + poly.error, remainder + poly.remainder
            sizes = sizes + np.abs(poly.coefficients).sum(0)
        low, high, curved = polynomial_range(self.terms, total)
        pad = (error + 4 * UNIT * len(self.parts) * sizes) * INFLATE + TINY
        weight = share / np.maximum(share.sum(1, keepdims=True), TINY)
        return low - pad, high + pad, curved + (self.terms.order * remainder)[:, None] * weight


class ArbDifference(Difference):
    """The same in Arb: float64 enclosures only choose which coordinate to halve."""

    def __init__(self, head: Atoms, target: list[Atoms], coordinate: int, order: int):
        super().__init__(head, target, coordinate, order)
        self.exact = [
            (1.0, ArbHead(head.keys, head.values[:, coordinate], head.logs, order)),
            *((-1.0, ArbHead(t.keys, t.values[:, coordinate], t.logs, order)) for t in target),
        ]

    def bounds(
        self, centre: np.ndarray, half: np.ndarray, goal: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        _, _, share = super().bounds(centre, half, goal)
        ends = [arb_bounds(self.exact, self.terms, c, r, WIDEST) for c, r in zip(centre, half, strict=True)]
        low, high = np.array(ends).T
        return low, high, share


@dataclass(frozen=True, eq=False)
class Sweep:
    """Result of a branch and bound: sup |f| <= ``upper`` (proved), boxes looked at, largest |f| met."""

    upper: float
    boxes: int
    largest: float
    point: np.ndarray


def sweep(
    difference: Difference,
    radius: np.ndarray,
    goal: Callable[[float], float],
    largest: float,
    budget: int,
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Halve boxes until |f| <= goal(largest |f| known) on each of them, or ``budget`` boxes are used up.

    Arguments:
        radius: (d,) half-widths of the whole box.
        goal: the bound to prove, given a proved lower bound of the supremum; non-decreasing.
        largest: a proved lower bound to start with.
        budget: number of boxes.
        progress: called with (boxes looked at, boxes waiting).
    """
    d = len(radius)
    waiting = deque([(-radius[None], radius[None], np.array([np.inf]))])
    point, settled, used = np.zeros(d), 0.0, 0
    # Once |f| exceeds the bound to prove at some point, no subdivision can help.
    while waiting and used < budget and largest <= goal(largest):
        lower, upper, bound = _take(waiting)
        centre = 0.5 * lower + 0.5 * upper
        half = np.maximum(upper - centre, centre - lower) * (1 + 4 * UNIT)
        low, high, share = difference.bounds(centre, half, goal(largest))
        used += len(centre)
        # |f| at the centre is at least what the whole box guarantees.
        sure = np.maximum(low, -high)
        if sure.max() > largest:
            largest, point = float(sure.max()), centre[sure.argmax()]
        new = np.minimum(bound, np.maximum(high, -low))
        new = np.where(np.isnan(new), bound, new)
        open_ = new > goal(largest)
        if (~open_).any():
            settled = max(settled, float(new[~open_].max()))
        if open_.any():
            waiting.append(_halved(lower[open_], upper[open_], new[open_], share[open_]))
        if progress:
            progress(used, sum(len(w[2]) for w in waiting))
    left = max((float(bound.max()) for *_, bound in waiting), default=0.0)
    return Sweep(max(settled, left), used, largest, point)


def _take(waiting: deque) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The oldest boxes, at most CHUNK of them."""
    taken, count = [], 0
    while waiting and count < CHUNK:
        item = waiting.popleft()
        room = CHUNK - count
        if len(item[2]) > room:
            waiting.appendleft(tuple(x[room:] for x in item))
            item = tuple(x[:room] for x in item)
        taken.append(item)
        count += len(item[2])
    lower, upper, bound = (np.concatenate(part) for part in zip(*taken, strict=True))
    return lower, upper, bound


def _halved(
    lower: np.ndarray, upper: np.ndarray, bound: np.ndarray, share: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    axis = np.where(np.isfinite(share), share, 0).argmax(1)
    rows = np.arange(len(axis))
    middle = 0.5 * lower[rows, axis] + 0.5 * upper[rows, axis]
    first, second = upper.copy(), lower.copy()
    first[rows, axis] = middle
    second[rows, axis] = middle
    return np.concatenate([lower, second]), np.concatenate([first, upper]), np.concatenate([bound, bound])


def check_sup_error(claim: Mapping[str, Any], witness: Named, subject: Named, arb: bool) -> Verdict:
    """Claim ``{"lower": x, "upper": y}``."""
    lower, upper = claimed_number(claim, "lower"), claimed_number(claim, "upper")
    head, target, radius = decode(subject)
    order = int(witness["order"])
    if not 1 <= order <= LARGEST_ORDER:
        raise InvalidWitness(f"order must be from 1 to {LARGEST_ORDER}, not {order}.")
    if math.comb(len(radius) + order, order) > LARGEST_TABLE:
        raise InvalidWitness(f"order {order} is too high in dimension {len(radius)}.")
    point = finite_array(witness, "point", (len(radius),))
    if (np.abs(point) > radius).any():
        raise InvalidWitness("point is outside the box.")
    low_bound, high_bound = 0.0, 0.0
    for coordinate in range(head.values.shape[1]):
        f = (ArbDifference if arb else Difference)(head, target, coordinate, order)
        low, high = f.at(point)
        low_bound = max(low_bound, low, -high)
        budget = ARB_BUDGET if arb else BUDGET
        high_bound = max(high_bound, sweep(f, radius, lambda _: upper, 0.0, budget).upper)
    holds = high_bound <= upper and lower <= low_bound
    where = f"the box of radius {np.array2string(radius, precision=6)}"
    text = (
        f"One head with {len(head.keys)} atoms stays within {high_bound:.6g} of the sum of {len(target)} "
        f"heads on {where}, and somewhere is off by {low_bound:.6g}"
    )
    if not holds:
        text += f"; the claim [{lower:.6g}, {upper:.6g}] is not proved"
    return Verdict(holds, text + ".", high_bound, min(upper - high_bound, low_bound - lower))


def decode(subject: Named) -> tuple[Atoms, list[Atoms], np.ndarray]:
    """Head, heads of the sum, and radius of the box; absent atoms dropped.

    Raises:
        InvalidWitness: shapes that do not fit, or numbers that are not finite.
    """
    radius = finite_array(subject, "radius", (None,))
    if not len(radius) or not (radius > 0).all():
        raise InvalidWitness("radius must be positive.")
    head = _atoms(subject, "head_", len(radius), None)
    return head, decode_target(subject, len(radius), head.values.shape[1]), radius


def decode_target(subject: Named, d: int, p: int | None = None) -> list[Atoms]:
    """The heads of the sum, from the ``target_`` arrays; absent atoms dropped."""
    atoms = _atoms(subject, "target_", d, p, keep=True)
    sizes = subject["target_sizes"]
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or not len(sizes) or (sizes < 1).any():
        raise InvalidWitness("target_sizes must be a list of positive integers.")
    if sizes.sum() != len(atoms.logs):
        raise InvalidWitness("target_sizes does not add up to the number of target atoms.")
    cuts = np.cumsum(sizes)[:-1]
    parts = zip(*(np.split(x, cuts) for x in (atoms.keys, atoms.values, atoms.logs)), strict=True)
    return [_present(Atoms(*part)) for part in parts]


def _atoms(subject: Named, prefix: str, d: int, p: int | None, keep: bool = False) -> Atoms:
    keys = finite_array(subject, prefix + "keys", (None, d))
    values = finite_array(subject, prefix + "values", (len(keys), p))
    logs = np.asarray(subject[prefix + "log_weights"])
    if logs.shape != (len(keys),) or logs.dtype.kind not in "fiu":
        raise InvalidWitness(f"{prefix}log_weights must be real of shape ({len(keys)},).")
    if not len(keys) or values.shape[1] == 0 or np.isnan(logs).any() or (logs == np.inf).any():
        raise InvalidWitness(f"{prefix}log_weights must be finite or -inf, with at least one atom.")
    atoms = Atoms(keys, values, logs.astype(np.float64))
    return atoms if keep else _present(atoms)


def _present(atoms: Atoms) -> Atoms:
    there = atoms.logs > -np.inf
    if not there.any():
        raise InvalidWitness("Every atom of a head is absent.")
    return Atoms(atoms.keys[there], atoms.values[there], atoms.logs[there])


def finite_array(arrays: Named, name: str, shape: tuple[int | None, ...]) -> np.ndarray:
    array = np.asarray(arrays[name])
    fits = array.ndim == len(shape) and all(
        want is None or want == have for want, have in zip(shape, array.shape, strict=True)
    )
    if not fits or array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        raise InvalidWitness(f"{name} must be finite real numbers of shape {shape}.")
    return array.astype(np.float64)


def claimed_number(claim: Mapping[str, Any], name: str) -> float:
    value = claim[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < np.inf:
        raise InvalidWitness(f"claim {name} must be a finite non-negative number, not {value!r}.")
    return float(value)
