"""How many atoms a single head needs to stay within eps of a sum of heads on all of R^d.

Along a generic ray a head tends to the value of the atom whose key is largest in that direction. The
directions that lead to one atom form a convex cone, and the cones of all atoms cover R^d. So if two
directions lead to the same atom, so does the segment between them, and the limits of the sum along that
segment all lie within eps of one value. Two directions whose segment meets two limits more than 2 eps
apart therefore lead to different atoms, and so do all directions near them. Directions that are pairwise
apart in this sense count atoms; no enumeration has to be complete for that, and every comparison is
made in integers.
"""

import time
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from ..certify import Certificate
from ..certify._fusion import fraction_text, text
from ..certify._robust_lower import (
    NORMS,
    Apart,
    Limits,
    Table,
    common_scale,
    lengths,
    products,
    unsettled,
)
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
    return int(robust_certificate(heads, eps, norm, time_limit).claim["atoms"])


def robust_certificate(heads: Any, eps: Any, norm: float = 2, time_limit: float = 60) -> Certificate:
    """``robust_lower_bound`` with its proof: a certificate of kind ``robust-lower``.

    Arguments and errors are those of ``robust_lower_bound``.

    >>> from attnlab.fusion import exact_sigmoid_sum
    >>> certificate = robust_certificate(exact_sigmoid_sum(2), "49/100")
    >>> certificate, bool(certificate.verify())
    (Certificate(robust-lower: atoms=4, eps=49/100, norm=2), True)
    """
    eps = rational(eps, "eps", exact_floats=True)
    if eps < 0:
        raise ValueError(f"eps must be at least 0, got {eps}.")
    names = [name for name, value in NORMS.items() if value == norm]
    if not names:
        raise ValueError(f"norm must be 1, 2 or math.inf, got {norm!r}.")
    tables = _tables(heads)
    scale = common_scale(tables, eps)
    limits, apart = Limits.of(tables, scale), Apart(int(2 * eps * scale), norm)
    points = [[tuple(key) for key in keys.tolist()] for keys in limits.keys]
    directions = exposing_directions(points, time.monotonic() + time_limit)
    if len(directions) > LARGEST:
        raise ValueError(f"The heads have {len(directions):,} cones; the bound compares at most {LARGEST:,}.")
    chosen, pairs = _separated(_generic(np.array(directions, dtype=object), limits), limits, apart)
    witness = {"directions": text(chosen.tolist()), "mixtures": text(MIXTURES), "pairs": text(pairs)}
    claim = {"atoms": len(chosen), "eps": fraction_text(eps), "norm": names[0]}
    return Certificate("robust-lower", claim, witness, {"heads": _subject(tables)})


def _subject(tables: Sequence[Table]) -> np.ndarray:
    rows = lambda items: [[fraction_text(x) for x in row] for row in items]
    return text([{"keys": rows(t), "values": rows(t.values())} for t in tables])


def _generic(directions: np.ndarray, limits: Limits) -> np.ndarray:
    """Directions moved a little inside their cones, so that segments do not run through corners."""
    directions = directions[limits.at(directions)[1]]
    noise = np.random.default_rng(0).integers(-(10**6), 10**6, directions.shape).astype(object)
    for digits in range(6, 40, 2):
        moved = 10**digits * directions + noise
        if (_choices(moved, limits) == _choices(directions, limits)).all() and limits.at(moved)[1].all():
            return moved
    return directions


def _choices(u: np.ndarray, limits: Limits) -> np.ndarray:
    """Per direction (k, d) and head the position of a largest key: (k, heads)."""
    return np.stack([products(u, keys).argmax(axis=1) for keys in limits.keys], axis=1)


def _separated(directions: np.ndarray, limits: Limits, apart: Apart) -> tuple[np.ndarray, list[Any]]:
    """Directions that pairwise belong to different atoms, and the points that show it where neither the
    ends nor ``MIXTURES`` do."""
    values, _ = limits.at(directions)
    if apart.find(values) is None:
        return directions[:1], []
    group, size = np.arange(len(directions)), lengths(directions)
    points: dict[tuple[int, int], list[list[int]]] = {}
    for i in range(len(directions)):
        others = np.flatnonzero(group != group[i])
        for j in unsettled(i, others[others > i], directions, size, values, limits, apart, MIXTURES):
            if group[i] != group[j]:
                met, weights = _between(directions[i], directions[j], limits)
                found = apart.find(met)
                if found is None:
                    group[group == group[j]] = group[i]
                else:
                    points[i, int(j)] = [weights[k] for k in found]
    chosen = sorted(k for g in np.unique(group) for k in _packing(np.flatnonzero(group == g), values, apart))
    place = {k: n for n, k in enumerate(chosen)}
    pairs = [[place[i], place[j], w] for (i, j), w in points.items() if i in place and j in place]
    return directions[chosen], pairs


def _between(u: np.ndarray, v: np.ndarray, limits: Limits) -> tuple[np.ndarray, list[list[int]]]:
    """All limits met in open subsets of the segment from u to v, and weights (a, b) of points a u + b v."""
    breaks = {Fraction(0), Fraction(1)}
    for keys in limits.keys:
        breaks |= _envelope_breaks((keys @ u).tolist(), (keys @ v).tolist())
    inner = [(a + b) / 2 for a, b in pairwise(sorted(breaks))]
    weights = [[t.denominator - t.numerator, t.numerator] for t in inner]
    met, unique = limits.at(np.array([a * u + b * v for a, b in weights], dtype=object))
    return met[unique], [w for w, clear in zip(weights, unique, strict=True) if clear]


def _packing(rows: np.ndarray, values: np.ndarray, apart: Apart) -> list[int]:
    """Rows picked greedily so that their values are all apart (best possible for scalar values)."""
    chosen: list[int] = []
    for row in sorted(rows.tolist(), key=lambda r: tuple(values[r])):
        if all(apart(values[row], values[other]) for other in chosen):
            chosen.append(row)
    return chosen


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


def _tables(heads: Any) -> list[Table]:
    """Per head {key in R^d: value}."""
    if hasattr(heads, "heads"):
        heads = heads.heads
    floating = isinstance(heads, Iterable) and all(hasattr(h, "log_weights") for h in heads)
    raw: list[Table] = (
        [_float_table(h) for h in heads] if floating else [_table(h) for h in checked_heads(heads)]
    )
    if not raw:
        raise ValueError("heads is empty; give at least one head.")
    if len({(len(k), len(v)) for table in raw for k, v in table.items()}) > 1:
        raise ValueError("The heads differ in dimension or value shape; they must agree.")
    return raw


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
