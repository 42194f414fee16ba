"""One-dimensional interactions: the exact profile, against the published values and every other search."""

import numpy as np
import pytest

from attnlab.rank import attention, brackets, error_profile
from attnlab.rank._knots import averages
from attnlab.rank._one_dimensional import line

EXACT = {2: 0.50737414, 3: 0.22649976, 4: 0.08888309}  # n = 32, beta = 8, default_rng(0), q first


def problem(n, beta):
    rng = np.random.default_rng(0)
    q, k = np.sort(rng.uniform(-1, 1, n)), np.sort(rng.uniform(-1, 1, n))
    return np.asarray(attention(q[:, None], k[:, None], beta))


def test_published_values():
    profile = error_profile(problem(32, 8.0), list(EXACT), effort="fast")
    for k, value in EXACT.items():
        i = int(np.flatnonzero(profile.ranks == k)[0])
        assert profile.lower[i] == pytest.approx(value, abs=1e-8)
        assert profile.upper[i] == pytest.approx(value, abs=1e-8)
        assert profile.lower_certificates[i].kind == "rank-lower-1d"


def test_the_generic_searches_bracket_the_exact_value(monkeypatch):
    import attnlab.rank._explorer as explorer

    monkeypatch.setattr(explorer, "line", lambda matrix: None)
    profile = error_profile(problem(32, 8.0), list(EXACT), effort="fast")
    for k, value in EXACT.items():
        i = int(np.flatnonzero(profile.ranks == k)[0])
        assert profile.lower[i] <= value * (1 + 1e-9) <= profile.upper[i] * (1 + 2e-9)
        assert profile.upper[i] < 1.01 * value


@pytest.mark.parametrize("beta", [1.0, 4.0, 16.0, 128.0])
def test_brackets_close(beta):
    for result in brackets(problem(32, beta), [0.02, 0.1, 0.3, 0.5], effort="fast"):
        assert result.closed


@pytest.mark.parametrize(
    ("n", "beta", "ranks"), [(32, 64.0, range(1, 9)), (32, 128.0, (3, 4, 6)), (128, 64.0, range(1, 15))]
)
def test_the_profile_closes_at_every_rank(n, beta, ranks):
    found = line(problem(n, beta))
    assert found is not None
    a = found.matrix
    for rank in ranks:
        lower, upper = found.solve(rank)
        image = a @ lower["h"]
        delta = np.abs(image[lower["rows"]]).min()
        assert upper is not None
        assert np.abs(a - upper["U"] @ upper["W"]).sum(1).max() <= delta * (1 + 1e-3)


def test_order_gauge_and_key_weights_do_not_matter(rng):
    q, k, b = rng.normal(size=12), rng.normal(size=15), rng.normal(size=15)
    a = np.asarray(attention(q[:, None], k[:, None], 3.0, b))
    shifted = np.asarray(attention(q[:, None] * 3.0 + 1, k[:, None], 1.0, b - k))
    first, second = (error_profile(x, [3], effort="fast") for x in (a, shifted))
    np.testing.assert_allclose(first.upper, second.upper, atol=1e-9)
    assert first.upper[1] <= first.lower[1] * (1 + 1e-6)


def test_two_dimensional_interactions_and_zeros_are_not_lines(rng):
    x = rng.normal(size=(9, 2))
    assert line(np.asarray(attention(x, x, 2.0))) is None
    assert line(np.eye(3)) is None
    assert line(np.full((3, 3), 1 / 3)) is None


def test_cell_averages():
    np.testing.assert_allclose(averages(np.array([1.25]), 3), [1, -0.5, -1])
    np.testing.assert_allclose(averages(np.array([0.5, 0.75]), 2), [0.5, 1])
