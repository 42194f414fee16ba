"""How many atoms a single head needs to stay within eps of a sum of heads on all of R^d.

Along a generic ray a head tends to the value of the atom whose key is largest in that direction. The
directions that lead to one atom form a convex cone, and the cones of all atoms cover R^d. So if two
directions lead to the same atom, so does the segment between them, and the limits of the sum along that
segment all lie within eps of one value. Two directions whose segment meets two limits more than 2 eps
apart therefore lead to different atoms, and so do all directions near them. Directions that are pairwise
apart in this sense count atoms; no enumeration has to be complete for that, and every comparison is
made in integers.
"""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import lcm
from typing import Any

import numpy as np

from ._exact import ExactHead, rational
from ._fuse import checked_heads
from ._vertices import exposing_directions

MIXTURES = ((1, 1), (1, 2), (2, 1), (1, 4), (4, 1), (2, 5), (5, 2), (1, 9), (9, 1))
LARGEST = 4096  # pairs of cones are compared, so more cones would take hours


def robust_lower_bound(heads: Any, eps: Any, norm: float = 2, time_limit: float = 60) -> int:
    """Atoms that any single head within ``eps`` of the sum of the heads on all of R^d must have.

    The sum has one limit per maximal cone of the common refinement of the heads' normal fans. Cones are
    joined unless the limits met between them differ by more than ``2 eps``; each component counts
    as many atoms as values more than ``2 eps`` apart can be picked in it. For W_d(q) = sum_{j<=d}
    sigma(q_j) this is 2^d for every eps < 1/2, and at eps = 1/2 it drops.

    Arguments:
        heads: ``ExactHead`` objects, or a ``HeadSum`` or ``Head`` objects, whose floats are taken as
            exact. Polytopes are those of the keys in R^d (``exponents @ basis``).
        eps: a bound on the error in the norm of values, non-negative; float or exact.
        norm: 1, 2 or ``math.inf``, for vector values.
        time_limit: seconds after which fewer directions are used (the bound stays valid).

    Raises:
        ValueError: ``eps`` or ``norm`` out of range, heads that do not fit, or more than 4,096 cones.

    >>> from attnlab.fusion import exact_sigmoid_sum
    >>> [robust_lower_bound(exact_sigmoid_sum(3), eps) for eps in (0.1, 0.49, 0.5, 2)]
    [8, 8, 2, 1]
    """
    eps = rational(eps, "eps", exact_floats=True)
    if eps < 0:
        raise ValueError(f"eps must be at least 0, got {eps}.")
    if norm not in (1, 2, math.inf):
        raise ValueError(f"norm must be 1, 2 or math.inf, got {norm!r}.")
    tables = _tables(heads)
    scale = lcm(*(x.denominator for t in tables for row in t.values() for x in row), eps.denominator)
    limit = _Limit([list(t) for t in tables], [_scaled(t.values(), scale) for t in tables])
    apart = _Apart(int(2 * eps * scale), norm)
    directions = exposing_directions([list(t) for t in tables], time.monotonic() + time_limit)
    if len(directions) > LARGEST:
        raise ValueError(f"The heads have {len(directions):,} cones; the bound compares at most {LARGEST:,}.")
    return _count(_generic(np.array(directions, dtype=object), limit), limit, apart)


@dataclass(frozen=True)
class _Limit:
    """Limits of the sum along rays: integer keys (n, d) and scaled values (n, p) per head."""

    keys: list[Any]
    values: list[np.ndarray]

    def at(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Limits (k, p) along directions (k, d), and where every head has a unique largest key."""
        unique = np.ones(len(u), dtype=bool)
        total = np.zeros((len(u), self.values[0].shape[1]), dtype=object)
        for keys, values in zip(self.keys, self.values, strict=True):
            heights = _exact_product(u, np.array(keys, dtype=object))
            largest = heights == heights.max(axis=1)[:, None]
            unique &= largest.sum(axis=1) == 1
            total = total + values[largest.argmax(axis=1)]
        return total, unique

    def choices(self, u: np.ndarray) -> np.ndarray:
        """Per direction (k, d) and head the position of a largest key: (k, heads)."""
        heights = [_exact_product(u, np.array(keys, dtype=object)) for keys in self.keys]
        return np.stack([h.argmax(axis=1) for h in heights], axis=1)

    def between(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """All limits met in open subsets of the segment from u to v."""
        breaks = {Fraction(0), Fraction(1)}
        for keys in self.keys:
            table = np.array(keys, dtype=object)
            breaks |= _envelope_breaks((table @ u).tolist(), (table @ v).tolist())
        inner = [(a + b) / 2 for a, b in pairwise(sorted(breaks))]
        points = [(t.denominator - t.numerator) * u + t.numerator * v for t in inner]
        limits, unique = self.at(np.array(points, dtype=object))
        return limits[unique]


@dataclass(frozen=True)
class _Apart:
    """Whether limits (in scaled integers) differ by more than ``gap`` in the norm."""

    gap: int
    norm: float

    def __call__(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        difference = np.abs(a - b)
        if self.norm == 2:
            return (difference * difference).sum(axis=-1) > self.gap**2
        return (difference.sum(axis=-1) if self.norm == 1 else difference.max(axis=-1)) > self.gap

    def any_pair(self, values: np.ndarray) -> bool:
        """Whether two of the rows are apart."""
        different = np.array(sorted({tuple(row) for row in values.tolist()}), dtype=object)
        return bool(self(different[:, None], different[None, :]).any())


def _generic(directions: np.ndarray, limit: _Limit) -> np.ndarray:
    """Directions moved a little inside their cones, so that segments do not run through corners."""
    directions = directions[limit.at(directions)[1]]
    noise = np.random.default_rng(0).integers(-(10**6), 10**6, directions.shape).astype(object)
    for digits in range(6, 40, 2):
        moved = 10**digits * directions + noise
        if (limit.choices(moved) == limit.choices(directions)).all() and limit.at(moved)[1].all():
            return moved
    return directions


def _count(directions: np.ndarray, limit: _Limit, apart: _Apart) -> int:
    values, _ = limit.at(directions)
    if not apart.any_pair(values):
        return 1
    group = np.arange(len(directions))
    size = [max(1, math.isqrt(int(u @ u))) for u in directions]
    for i in range(len(directions)):
        others = np.flatnonzero(group != group[i])
        others = others[(others > i) & ~apart(values[others], values[i]).astype(bool)]
        for a, b in MIXTURES:  # points between two cones that settle most pairs at once
            if not len(others):
                break
            weights = np.array([b * size[i] for _ in others], dtype=object)[:, None]
            own = np.array([a * size[j] for j in others], dtype=object)[:, None]
            met, clear = limit.at(own * directions[i] + weights * directions[others])
            split = apart(met, values[i]).astype(bool) | apart(met, values[others]).astype(bool)
            others = others[~(split & clear)]
        for j in others:
            if group[i] != group[j] and not apart.any_pair(limit.between(directions[i], directions[j])):
                group[group == group[j]] = group[i]
    return sum(_packing(values[group == g], apart) for g in np.unique(group))


def _packing(values: np.ndarray, apart: _Apart) -> int:
    """Number of values picked greedily so that all are apart (best possible for scalar values)."""
    chosen: list[np.ndarray] = []
    for row in sorted({tuple(v) for v in values.tolist()}):
        value = np.array(row, dtype=object)
        if all(apart(value, other) for other in chosen):
            chosen.append(value)
    return len(chosen)


def _envelope_breaks(start: Sequence[int], end: Sequence[int]) -> set[Fraction]:
    """Where in (0, 1) the largest of the lines from ``start`` to ``end`` changes."""
    breaks: set[Fraction] = set()
    t, best = Fraction(0), max(range(len(start)), key=lambda a: (start[a], end[a]))
    while True:
        # A line that rises relative to the best one meets it at (start gap) / (gain of slope).
        gaps = [
            (Fraction(start[best] - s, (e - s) - (end[best] - start[best])), -(e - s), a)
            for a, (s, e) in enumerate(zip(start, end, strict=True))
            if e - s > end[best] - start[best]
        ]
        ahead = [gap for gap in gaps if t <= gap[0] < 1]
        if not ahead:
            return breaks
        t, _, best = min(ahead)
        breaks.add(t)


def _exact_product(u: np.ndarray, keys: np.ndarray) -> np.ndarray:
    size = max(map(abs, u.flat)) * max(map(abs, keys.flat)) * u.shape[1]
    dtype = np.int64 if size < 2**62 else object
    return u.astype(dtype) @ keys.astype(dtype).T


def _scaled(values: Iterable[Sequence[Fraction]], scale: int) -> np.ndarray:
    return np.array([[int(x * scale) for x in row] for row in values], dtype=object)


def _tables(heads: Any) -> list[dict[tuple[int, ...], tuple[Fraction, ...]]]:
    """Per head {integer key in R^d: value}; one common scale for all keys."""
    if hasattr(heads, "heads"):
        heads = heads.heads
    floating = isinstance(heads, Iterable) and all(hasattr(h, "log_weights") for h in heads)
    raw = [_float_table(h) for h in heads] if floating else [_table(h) for h in checked_heads(heads)]
    if not raw:
        raise ValueError("heads is empty; give at least one head.")
    if len({(len(k), len(v)) for table in raw for k, v in table.items()}) > 1:
        raise ValueError("The heads differ in dimension or value shape; they must agree.")
    unit = lcm(*(x.denominator for table in raw for key in table for x in key))
    return [{tuple(int(x * unit) for x in key): v for key, v in table.items()} for table in raw]


def _table(head: ExactHead) -> dict[tuple[Fraction, ...], tuple[Fraction, ...]]:
    rows: dict[tuple[Fraction, ...], tuple[Fraction, tuple[Fraction, ...]]] = {}
    for e, w, v in zip(head.exponents, head.weights, head.value_rows(), strict=True):
        columns = zip(*head.basis, strict=True) if head.basis else None
        key = (
            tuple(
                sum((x * Fraction(b) for x, b in zip(e, column, strict=True)), Fraction(0))
                for column in columns
            )
            if columns
            else tuple(map(Fraction, e))
        )
        mass, moment = rows.get(key, (Fraction(0), (Fraction(0),) * len(v)))
        rows[key] = (mass + w, tuple(m + w * x for m, x in zip(moment, v, strict=True)))
    return {key: tuple(m / mass for m in moment) for key, (mass, moment) in rows.items()}


def _float_table(head: Any) -> dict[tuple[Fraction, ...], tuple[Fraction, ...]]:
    keys, values, logs = (np.asarray(x, dtype=np.float64) for x in (head.keys, head.values, head.log_weights))
    table: dict[tuple[Fraction, ...], tuple[Fraction, ...]] = {}
    for key, value, log in zip(keys, values.reshape(len(keys), -1), logs, strict=True):
        if log == -np.inf:
            continue
        exact, v = tuple(map(Fraction, key.tolist())), tuple(map(Fraction, value.tolist()))
        if table.setdefault(exact, v) != v:
            raise ValueError("A head has one key twice with different values; merge those atoms first.")
    return table
