"""SVD dimension and polynomial features."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.certify import Certificate
from attnlab.interaction import (
    intrinsic,
    polynomial_factors,
    residual,
    row_cover,
    svd_dimension,
    tau,
)


def head(seed, r=3, scale=1.0, m=12, n=10):
    rng = np.random.default_rng(seed)
    x, y, b = rng.normal(size=(m, r)), rng.normal(size=(n, r)), rng.normal(size=n)
    p = np.exp(scale * x @ y.T + b)
    return p / p.sum(1, keepdims=True), scale * x, y, b


@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_svd_dimension_is_exact_for_low_rank_interactions(seed, r):
    a = head(seed, r)[0]
    assert svd_dimension(a, 1e-8) == r
    assert svd_dimension(a, 2.0) == 0


@given(st.integers(0, 2**32 - 1), st.floats(0.05, 1.5))
def test_svd_dimension_is_the_first_that_fits(seed, tolerance):
    a = head(seed, 6)[0]
    c = intrinsic(a)
    u, s, vt = np.linalg.svd(c)
    fits = [float(tau(residual(c - (u[:, :r] * s[:r]) @ vt[:r]))) <= tolerance for r in range(len(s) + 1)]
    assert svd_dimension(a, tolerance) == fits.index(True)


@pytest.mark.parametrize("r", [1, 2, 3])
def test_polynomial_factors_converge_and_certify(r):
    a, x, y, b = head(0, r, scale=0.3)
    errors = []
    for degree in (1, 3, 6):
        u, w = polynomial_factors(x, y, b, degree)
        assert u.shape[1] == w.shape[0] == math.comb(r + degree, degree)
        errors.append(np.abs(a - u @ w).sum(1).max())
        claim = {"rank": u.shape[1], "error": errors[-1] + 1e-9}
        certificate = Certificate("rank-upper", claim, {"U": u, "W": w}, {"attention": a})
        assert certificate.verify()
    assert errors[0] > 3 * errors[1] > 9 * errors[2]


@given(st.integers(0, 2**32 - 1), st.floats(0.05, 1.9))
def test_row_cover_is_within_eps_and_certifies(seed, eps):
    a = head(seed, 3)[0]
    u, w = row_cover(a, eps)
    assert np.abs(a - u @ w).sum(1).max() <= eps + 1e-12
    assert {tuple(row) for row in w} <= {tuple(row) for row in a}
    claim = {"rank": len(w), "error": eps + 1e-9}
    assert Certificate("rank-upper", claim, {"U": u, "W": w}, {"attention": a}).verify()


def test_row_cover_counts_distinct_rows():
    a = np.eye(3)[[0, 1, 2, 0, 1]]
    assert len(row_cover(a, 0.5)[1]) == 3
    assert len(row_cover(a, 2.0)[1]) == 1


def test_bad_input():
    with pytest.raises(ValueError, match="eps"):
        row_cover(np.full((2, 2), 0.5), 0.0)
    with pytest.raises(ValueError, match="tolerance"):
        svd_dimension(np.full((2, 2), 0.5), -1.0)
    with pytest.raises(ValueError, match="degree"):
        polynomial_factors(np.ones((2, 1)), np.ones((2, 1)), np.zeros(2), -1)
    with pytest.raises(ValueError, match="log_weights"):
        polynomial_factors(np.ones((2, 1)), np.ones((2, 1)), np.zeros(3), 1)
