"""Deciding exactly whether a rational subspace contains a vector with only positive entries.

Gordan's theorem: either B c > 0 for some c, or y B = 0 for some y >= 0, y != 0. A linear program in
floats proposes one of the two, integers confirm it.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import gcd
from typing import Any

import flint
import numpy as np
from scipy.optimize import linprog

Vector = list[int]


def positive_combination(basis: Sequence[Vector], size: int) -> tuple[Vector | None, Vector | None]:
    """Integers ``(c, y)``, one of them ``None``; both ``None`` if the program's answer was no use.

    Arguments:
        basis: k independent integer vectors of length ``size``; k = 0 is allowed. ``c`` (k) gives
            ``sum_j c_j basis_j > 0``; ``y`` (size) is non-negative, not zero, and orthogonal to all.
    """
    for i in range(size):
        if not any(vector[i] for vector in basis):
            return None, [int(j == i) for j in range(size)]
    reduced = _short(basis)
    if len(reduced) == 1:
        return _single(basis, reduced[0])
    table = np.array([[float(Fraction(x, max(map(abs, v)))) for x in v] for v in reduced]).T
    table = table / np.abs(table).max(axis=1, keepdims=True)
    program = linprog(
        [0.0] * len(reduced) + [-1.0],
        A_ub=np.hstack([-table, np.ones((size, 1))]),
        b_ub=np.zeros(size),
        bounds=[(-1, 1)] * len(reduced) + [(0, 1)],
        method="highs",
    )
    if program.x is not None and program.x[-1] > 1e-9:
        for digits in (1, 2, 4, 8, 12, 15):
            c = [
                Fraction(round(x * 10**digits), max(map(abs, v)))
                for x, v in zip(program.x, reduced, strict=False)
            ]
            total = [
                sum((a * v[i] for a, v in zip(c, reduced, strict=True)), Fraction(0)) for i in range(size)
            ]
            if min(total) > 0:
                return _coordinates(basis, total), None
    program = linprog(
        np.zeros(size),
        A_eq=np.vstack([table.T, np.ones(size)]),
        b_eq=np.array([0.0] * len(reduced) + [1.0]),
        bounds=[(0, 1)] * size,
        method="highs-ds",
    )
    if program.x is None:
        return None, None
    return None, _exact_dual(reduced, [i for i in range(size) if program.x[i] > 1e-11])


def _short(basis: Sequence[Vector]) -> list[Vector]:
    """A basis of the same lattice with small entries."""
    return [[int(x) for x in row] for row in flint.fmpz_mat([list(v) for v in basis]).lll().tolist()]


def _single(basis: Sequence[Vector], vector: Vector) -> tuple[Vector | None, Vector | None]:
    if min(vector) > 0 or max(vector) < 0:
        sign = 1 if min(vector) > 0 else -1
        return _coordinates(basis, [Fraction(sign * x) for x in vector]), None
    i, j = vector.index(max(vector)), vector.index(min(vector))
    y = [0] * len(vector)
    y[i], y[j] = -vector[j], vector[i]
    return None, y


def _coordinates(basis: Sequence[Vector], target: Sequence[Fraction]) -> Vector:
    """Positive integer multiple of the coordinates of ``target`` in the basis."""
    b = flint.fmpq_mat(flint.fmpz_mat([list(v) for v in basis]))
    right = flint.fmpq_mat(len(basis), 1, [_dot(v, target) for v in basis])
    solution = (b * b.transpose()).solve(right)
    numerators, _ = solution.numer_denom()
    return _primitive([int(row[0]) for row in numerators.tolist()])


def _dot(vector: Vector, target: Sequence[Fraction]) -> Any:
    total = sum((a * b for a, b in zip(vector, target, strict=True)), Fraction(0))
    return flint.fmpq(total.numerator, total.denominator)


def _exact_dual(basis: Sequence[Vector], support: Sequence[int]) -> Vector | None:
    """y >= 0 on the support with y . v = 0 for all v, from a vertex found in floats."""
    matrix = flint.fmpz_mat([[v[i] for i in support] for v in basis])
    kernel, nullity = matrix.nullspace()
    for column in range(nullity):
        y = [int(row[column]) for row in kernel.tolist()]
        for sign in (1, -1):
            if any(y) and min(sign * x for x in y) >= 0:
                full = [0] * len(basis[0])
                for i, x in zip(support, y, strict=True):
                    full[i] = sign * x
                return _primitive(full)
    return None


def _primitive(vector: Vector) -> Vector:
    divisor = gcd(*vector) or 1
    return [x // divisor for x in vector]
