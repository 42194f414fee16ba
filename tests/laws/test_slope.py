"""Slope fits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.laws import fit_slope


@given(st.floats(-3, 3), st.floats(0.01, 100))
def test_exact_power_laws_have_no_spread(slope, factor):
    x = 2.0 ** np.arange(6)
    fit = fit_slope(x, factor * x**slope)
    assert fit.slope == pytest.approx(slope, abs=1e-9)
    assert fit.low == pytest.approx(fit.high, abs=1e-9)
    assert np.exp(fit.intercept) == pytest.approx(factor, rel=1e-9)


def test_interval_covers_the_truth_about_as_often_as_promised():
    rng = np.random.default_rng(0)
    x = 2.0 ** np.arange(12)
    hits = 0
    for seed in range(200):
        y = x**1.5 * np.exp(0.2 * rng.normal(size=x.size))
        fit = fit_slope(x, y, level=0.9, resamples=300, seed=seed)
        hits += fit.low <= 1.5 <= fit.high
    assert 160 <= hits <= 195  # nominal 180


def test_same_seed_same_interval_and_units_do_not_matter():
    x, y = np.array([1.0, 2, 4, 8, 16]), np.array([3.0, 5, 11, 19, 42])
    one, two = fit_slope(x, y), fit_slope(7 * x, 0.1 * y)
    assert fit_slope(x, y) == one
    assert (one.slope, one.low, one.high) == pytest.approx((two.slope, two.low, two.high))


@pytest.mark.parametrize(
    ("x", "y", "word"),
    [
        ([1, 2], [1, 2], "length >= 3"),
        (["a"] * 3, [1, 2, 3], "real numbers"),
        ([1, 1, 1], [1, 2, 3], "distinct"),
        ([1, 2, 3], [1, 0, 3], "y must be positive"),
        ([1, 2, np.nan], [1, 1, 3], "x must be positive"),
    ],
)
def test_bad_input(x, y, word):
    with pytest.raises(ValueError, match=word):
        fit_slope(x, y)


def test_bad_level():
    with pytest.raises(ValueError, match="resamples"):
        fit_slope([1, 2, 4], [1, 2, 4], resamples=0)
    with pytest.raises(ValueError, match="level"):
        fit_slope([1, 2, 4], [1, 2, 4], level=1.5)
