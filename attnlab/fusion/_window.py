"""Sparsest single head with keys in a finite window, by integer programming, confirmed exactly.

Every head equal to P/Q has the denominator D = Q G and the numerators N = P G for a polynomial G, so for a
finite window of keys the unknowns are the coefficients of G. A binary z_s per key marks an atom:
delta z_s <= D_s <= z_s and |N_s| <= V z_s. The floats of the solver decide nothing: a support it proposes is
kept if a strictly positive rational D is found on it, and is cut off otherwise. Its bound is not used at
all, because delta and V exclude supports.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import gcd
from typing import Any

import flint
import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_array, hstack, identity, vstack

from ..certify._fusion import Poly, Ratio, context
from ..certify._fusion_lower import terms
from ._exact import rational, rows
from ._lattice import Key
from ._positive import positive_combination

DELTA = 1e-3  # smallest weight the program accepts, relative to the sum of all weights
TRIES = 20  # supports that fail in exact arithmetic before the search gives up
LARGEST = 4000  # keys in a window

Terms = Mapping[Key, int]


def usable_keys(window: Any, ratio: Ratio, enough: int) -> list[Key]:
    """The keys of a window in which some head equal to the reduced ``ratio`` fits.

    Arguments:
        window: an integer n for all keys in (0..n)^rho, or a table of integer keys.
        enough: an integer window known to hold a head.

    Raises:
        ValueError: neither of the two, too many keys, or no head fits.
    """
    keys = _keys(window, ratio)
    if not _Search(ratio, keys).usable:
        shown = f"window={window}" if isinstance(window, int) else f"The window of {len(keys)} keys"
        raise ValueError(
            f"{shown} is too small: no single head equal to the sum has all its keys in it; the least "
            f"usable integer window is {least_window(ratio, enough)}."
        )
    return keys


def _keys(window: Any, ratio: Ratio) -> list[Key]:
    dim = len(ratio.denominator.degrees())
    if isinstance(window, int | np.integer) and not isinstance(window, bool):
        if window < 0:
            raise ValueError(f"window must be at least 0, got {window}.")
        _check_size((int(window) + 1) ** dim)
        return list(box([int(window)] * dim))
    if isinstance(window, str | bytes | float):
        raise ValueError(f"window must be an integer or a table of integer keys, got {window!r}.")
    window = list(window) if isinstance(window, range | set | frozenset) else window
    table = [[rational(x, "window") for x in row] for row in rows(window, "window")]
    if any(len(row) != dim or any(x.denominator != 1 for x in row) for row in table):
        raise ValueError(f"window must hold integer keys with {dim} coordinates.")
    _check_size(len(table))
    return sorted({tuple(int(x) for x in row) for row in table})


def least_window(ratio: Ratio, enough: int) -> int:
    """The least n for which some head has all keys in (0..n)^rho, known to be at most ``enough``."""
    dim = len(ratio.denominator.degrees())
    least = max(int(x) for x in ratio.denominator.degrees())
    for n in range(least, enough):
        if (n + 1) ** dim > LARGEST or _Search(ratio, list(box([n] * dim))).usable:
            return n
    return enough


def sparsest(ratio: Ratio, keys: Sequence[Key], lower: int, upper: int, deadline: float) -> Ratio | None:
    """A head with at least ``lower`` and less than ``upper`` atoms in the window, or ``None``."""
    search = _Search(ratio, keys)
    return search.improve(lower, upper, deadline) if search.usable else None


class _Search:
    """The multiples of a reduced fraction whose keys lie in a window, up to a common shift."""

    def __init__(self, ratio: Ratio, keys: Sequence[Key]):
        self.ratio = ratio
        self.below = terms(ratio.denominator)
        self.above = [terms(n) for n in ratio.numerators]
        low = [min(column) for column in zip(*keys, strict=True)]
        high = [max(column) for column in zip(*keys, strict=True)]
        widths = [int(x) for x in ratio.denominator.degrees()]
        ranges = [range(a, b - w + 1) for a, b, w in zip(low, high, widths, strict=True)]
        self.shifts = list(product(*ranges))
        reached = {_add(e, g) for e in self.below for g in self.shifts}
        reached |= {_add(e, g) for n in self.above for e in n for g in self.shifts}
        self.keys = sorted(reached)
        self.position = {key: i for i, key in enumerate(self.keys)}
        self.d = self._matrix(self.below)
        self.n = [self._matrix(n) for n in self.above]
        self.allowed = self._largest_support(set(keys) & reached) if self.shifts else []
        self.usable = bool(self.allowed)

    def improve(self, lower: int, upper: int, deadline: float) -> Ratio | None:
        """The best head found with fewer than ``upper`` atoms."""
        best: Ratio | None = None
        cuts: list[list[int]] = []
        while len(cuts) < TRIES and lower < upper and time.monotonic() < deadline:
            support = self._propose(lower, upper - 1, cuts, deadline - time.monotonic())
            if support is None:
                return best
            found = self._exact(support)
            if found is None:
                cuts.append(support)
            else:
                best, upper = found, len(found.denominator)
        return best

    def _propose(self, lower: int, upper: int, cuts: list[list[int]], seconds: float) -> list[int] | None:
        """A support with at most ``upper`` keys that satisfies the program in floats."""
        k, m = len(self.allowed), len(self.shifts)
        outside = [i for i in range(len(self.keys)) if i not in set(self.allowed)]
        d, ns = self.d[self.allowed], [n[self.allowed] for n in self.n]
        eye = identity(k)
        size = 4 * max((abs(c) for n in self.above for c in n.values()), default=1)
        size = max(1.0, size / max(abs(c) for c in self.below.values()))
        blocks = [
            LinearConstraint(hstack([d, -DELTA * eye]), 0, np.inf),
            LinearConstraint(hstack([d, -eye]), -np.inf, 0),
            LinearConstraint(csr_array(np.concatenate([d.sum(axis=0), np.zeros(k)]).reshape(1, -1)), 1, 1),
            LinearConstraint(
                csr_array(np.concatenate([np.zeros(m), np.ones(k)]).reshape(1, -1)), lower, upper
            ),
        ]
        for n in ns:
            blocks.append(LinearConstraint(hstack([n, -size * eye]), -np.inf, 0))
            blocks.append(LinearConstraint(hstack([n, size * eye]), 0, np.inf))
        if outside:
            rest = vstack([a[outside] for a in (self.d, *self.n)])
            none = csr_array((len(outside) * (1 + len(ns)), k))
            blocks.append(LinearConstraint(hstack([rest, none]), 0, 0))
        for cut in cuts:  # not this support again
            inside = np.isin(self.allowed, cut)
            row = np.concatenate([np.zeros(m), np.where(inside, 1.0, -1.0)])
            blocks.append(LinearConstraint(csr_array(row.reshape(1, -1)), -np.inf, len(cut) - 1))
        free = [*[-np.inf] * m, *[0.0] * k], [*[np.inf] * m, *[1.0] * k]
        solution = milp(
            np.concatenate([np.zeros(m), np.ones(k)]),
            integrality=np.concatenate([np.zeros(m), np.ones(k)]),
            bounds=Bounds(*free),  # pyright: ignore[reportArgumentType]
            constraints=blocks,
            options={"time_limit": max(seconds, 0.01)},
        )
        if solution.x is None:
            return None
        return [i for i, z in zip(self.allowed, solution.x[m:], strict=True) if z > 0.5]

    def _exact(self, support: Sequence[int]) -> Ratio | None:
        """A rational head with exactly these keys, if there is one."""
        chosen = set(support)
        equations = []
        for poly in (self.below, *self.above):
            table = [[0] * len(self.shifts) for _ in self.keys]
            for j, g in enumerate(self.shifts):
                for e, c in poly.items():
                    table[self.position[_add(e, g)]][j] += c
            equations += [row for i, row in enumerate(table) if i not in chosen and any(row)]
        kernel = _kernel(equations, len(self.shifts))
        weights = [self._weights(g, support) for g in kernel]
        c, _ = positive_combination(weights, len(support))
        if c is None:
            return None
        g = [sum(a * v[j] for a, v in zip(c, kernel, strict=True)) for j in range(len(self.shifts))]
        return _times(self.ratio, {s: x // gcd(*g) for s, x in zip(self.shifts, g, strict=True) if x})

    def _weights(self, g: Sequence[int], support: Sequence[int]) -> list[int]:
        total: dict[Key, int] = {}
        for s, x in zip(self.shifts, g, strict=True):
            if x:
                for e, c in self.below.items():
                    key = _add(e, s)
                    total[key] = total.get(key, 0) + c * x
        return [total.get(self.keys[i], 0) for i in support]

    def _largest_support(self, keys: set[Key]) -> list[int]:
        """Positions of the largest support of a head in the window, empty if there is none.

        Heads on a support form a convex cone, so one linear program finds all keys that can have a
        positive weight at once; numerators then vanish elsewhere, which can exclude more keys.
        """
        allowed = sorted(self.position[key] for key in keys)
        while allowed:
            d, k, m = self.d[allowed], len(allowed), len(self.shifts)
            outside = [i for i in range(len(self.keys)) if i not in set(allowed)]
            rest = vstack([a[outside] for a in (self.d, *self.n)]) if outside else None
            height = len(outside) * (1 + len(self.n))
            program = linprog(
                np.concatenate([np.zeros(m), -np.ones(k)]),
                A_ub=hstack([-d, identity(k)]),
                b_ub=np.zeros(k),
                A_eq=None if rest is None else hstack([rest, csr_array((height, k))]),
                b_eq=None if rest is None else np.zeros(height),
                bounds=[(None, None)] * m + [(0, 1)] * k,
                method="highs",
            )
            if program.x is None:
                return []
            kept = [i for i, t in zip(allowed, program.x[m:], strict=True) if t > 1e-6]
            if len(kept) == k:
                return kept
            allowed = kept
        return []

    def _matrix(self, poly: Terms) -> Any:
        scale = max(abs(c) for c in self.below.values())
        entries = [
            (self.position[_add(e, g)], j, c / scale)
            for j, g in enumerate(self.shifts)
            for e, c in poly.items()
        ]
        i, j, c = (np.array(x) for x in zip(*entries, strict=True)) if entries else ([], [], [])
        return csr_array((c, (i, j)), shape=(len(self.keys), len(self.shifts)))


def _kernel(equations: Sequence[Sequence[int]], size: int) -> list[list[int]]:
    """Integer basis of the vectors that all equations annihilate."""
    if not equations:
        return [[int(i == j) for j in range(size)] for i in range(size)]
    basis, nullity = flint.fmpz_mat([list(row) for row in equations]).nullspace()
    table = basis.tolist()
    return [[int(row[j]) for row in table] for j in range(nullity)]


def _times(ratio: Ratio, factor: Terms) -> Ratio:
    """Numerators and denominator times a Laurent polynomial, shifted to non-negative exponents."""
    low = [min(column) for column in zip(*factor, strict=True)]
    g: Poly = context(len(low)).from_dict(
        {tuple(a - b for a, b in zip(e, low, strict=True)): c for e, c in factor.items()}
    )
    return Ratio(tuple(n * g for n in ratio.numerators), ratio.denominator * g)


def _check_size(count: int) -> None:
    if count > LARGEST:
        raise ValueError(f"window holds {count:,} keys; the search takes at most {LARGEST:,}.")


def _add(a: Key, b: Key) -> Key:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def box(widths: Sequence[int]) -> Iterator[Key]:
    """All keys from 0 to the given degree in each variable."""
    return product(*(range(w + 1) for w in widths))
