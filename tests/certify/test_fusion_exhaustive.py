"""The exhaustive search in one variable: minima it settles alone, and patterns that survive it."""

from itertools import combinations

import flint
import pytest

from attnlab.certify._fusion_exhaustive import exclude


def fraction(steps):
    """P and Q of sum_j sigma(a_j q) in lowest terms, coefficients lowest first."""
    x = flint.fmpz_poly([0, 1])
    p, q = flint.fmpz_poly([0]), flint.fmpz_poly([1])
    for a in steps:
        p, q = p * (1 + x**a) + x**a * q, q * (1 + x**a)
    g = p.gcd(q)
    return [int(c) for c in (p // g).coeffs()], [int(c) for c in (q // g).coeffs()]


@pytest.mark.parametrize(
    ("steps", "atoms"),
    [
        ((1, 1), 2), ((1, 1, 1, 1), 2), ((1, 2), 4), ((1, 3), 4), ((2, 3), 4), ((1, 1, 2), 4),
        ((1, 3, 5), 8), ((1, 3, 4, 5), 12),
    ],
)  # fmt: skip
def test_known_minima(steps, atoms):
    p, q = fraction(steps)
    assert exclude([p], q, atoms - 1, budget=10**6).excluded
    assert exclude([p], q, atoms, budget=10**6).supports
    assert exclude([p, p], q, atoms - 1, budget=10**6).excluded  # equal coordinates add nothing


def test_a_pattern_with_a_zero_weight_survives_and_is_reported():
    # Six keys solve N Q = P D for exponents 1, 2, 3, but only with a weight that is zero.
    outcome = exclude(*_single((1, 2, 3)), 6, budget=10**6)
    assert not outcome.excluded
    assert (0, 1, 3, 4, 6, 7) in outcome.supports


@pytest.mark.parametrize("steps", [(1, 2), (1, 3), (1, 2, 3)])
def test_agrees_with_plain_enumeration(steps):
    (p,), q = _single(steps)
    degree = len(q) - 1
    for size in range(1, 6):
        survive = any(
            _nullity((0, *rest), p, q) > 0
            for rest in combinations(range(1, (size - 1) * degree + 1), size - 1)
        )
        assert exclude([p], q, size, budget=10**6).excluded == (not survive)
        if survive:
            break


def test_budget_never_proves():
    outcome = exclude(*_single((1, 3, 4, 5)), 11, budget=10)
    assert not outcome.excluded
    assert not outcome.finished


def test_vanishing_constant_term_is_refused():
    with pytest.raises(ValueError, match="denominator"):
        exclude([[1]], [0, 1], 1, budget=10)


def _single(steps):
    p, q = fraction(steps)
    return [p], q


def _nullity(support, p, q):
    """Dimension of {(D, N) on the support : N Q = P D} over the rationals."""
    rows = support[-1] + len(q)
    matrix = [[0] * (2 * len(support)) for _ in range(rows)]
    for column, s in enumerate(support):
        for j, c in enumerate(q):
            matrix[s + j][column] += c
        for j, c in enumerate(p):
            matrix[s + j][len(support) + column] -= c
    return 2 * len(support) - flint.fmpz_mat(matrix).rank()
