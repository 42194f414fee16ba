"""Truncated power series in several variables, for many boxes at once.

A batch of series is an array (terms, boxes): one row per exponent, exponents in graded order.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement, pairwise

import numpy as np


@dataclass(frozen=True, eq=False)
class Exponents:
    """All exponents of total degree at most ``order`` in ``dim`` variables.

    Attributes:
        table: (terms, dim) integers; row 0 is the constant term.
        factorials: (terms,) products of factorials.
        pairs: for each row a, the rows b > 0 and c with exponents b + c = a.
        parents: for each row > 0, a row of degree one less and the variable that leads from it.
    """

    dim: int
    order: int
    table: np.ndarray
    factorials: np.ndarray
    pairs: tuple[tuple[np.ndarray, np.ndarray], ...]
    parents: tuple[tuple[int, int], ...]

    def monomials(self, x: np.ndarray) -> np.ndarray:
        """(terms, n) values of all monomials at points (dim, n)."""
        out = np.ones((len(self.table), x.shape[1]))
        for row, (parent, variable) in enumerate(self.parents, start=1):
            np.multiply(out[parent], x[variable], out=out[row])
        return out

    def by_degree(self, series: np.ndarray) -> np.ndarray:
        """(order + 1, boxes) sums of absolute coefficients of each degree."""
        ends = np.searchsorted(self.table.sum(1), np.arange(self.order + 2))
        return np.stack([np.abs(series[a:b]).sum(0) for a, b in pairwise(ends)])

    def divide(self, numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
        """The truncated quotient; the constant term of the denominator is positive."""
        quotient = np.empty_like(numerator)
        quotient[0] = numerator[0] / denominator[0]
        for row, (b, c) in enumerate(self.pairs[1:], start=1):
            product = np.einsum("kb,kb->b", denominator[b], quotient[c])
            quotient[row] = (numerator[row] - product) / denominator[0]
        return quotient


@lru_cache(maxsize=64)
def exponents(dim: int, order: int) -> Exponents:
    """The table for ``dim`` variables (possibly none) up to ``order``."""
    rows: list[tuple[int, ...]] = [
        tuple(chosen.count(j) for j in range(dim))
        for degree in range(order + 1 if dim else 1)
        for chosen in combinations_with_replacement(range(dim), degree)
    ]
    place = {row: i for i, row in enumerate(rows)}
    pairs, parents = [], []
    for a in rows:
        below = [b for b in rows if any(b) and all(x <= y for x, y in zip(b, a, strict=True))]
        rest = [place[tuple(y - x for x, y in zip(b, a, strict=True))] for b in below]
        pairs.append((np.array([place[b] for b in below], dtype=int), np.array(rest, dtype=int)))
        if any(a):
            j = next(i for i, x in enumerate(a) if x)
            parents.append((place[(*a[:j], a[j] - 1, *a[j + 1 :])], j))
    factorials = np.array([math.prod(map(math.factorial, row)) for row in rows], dtype=float)
    table = np.array(rows, dtype=int).reshape(len(rows), dim)
    return Exponents(dim, order, table, factorials, tuple(pairs), tuple(parents))
