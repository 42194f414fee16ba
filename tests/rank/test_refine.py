"""The float64 end of a lower search: true gradients, never worse, and what float32 lost comes back."""

import jax
import numpy as np
import pytest

from attnlab.rank import attention, error_profile
from attnlab.rank._descend import Smoothing, smooth_max_row_sum
from attnlab.rank._lower import complete, search_lower
from attnlab.rank._refine import refine_lower, value_and_gradient


@pytest.fixture
def matrix(rng):
    x, y = rng.normal(size=(9, 3)), rng.normal(size=(11, 3))
    return np.asarray(attention(x, y, 1.0), np.float64)


def norm(weights):
    return np.abs(weights).sum(1).max()


@pytest.mark.parametrize(("width", "heat"), [(0.1, 0.1), (1e-3, 1e-3)])
def test_gradients_are_those_of_the_search(matrix, rng, width, heat):
    """JAX differentiates the same objective with a true inverse."""
    params = rng.normal(size=(4, 9)), rng.normal(size=(11, 4)), 0.3 * rng.normal(size=(11, 9))

    def objective(params):
        left, right, free = params
        c = free + (right - free @ matrix @ right) @ jax.numpy.linalg.solve(left @ matrix @ right, left)
        return smooth_max_row_sum(c, Smoothing(width, heat))

    wanted, exact = jax.grad(objective, has_aux=True)(params)
    value, got = value_and_gradient(matrix, *params, width, heat)
    assert value == pytest.approx(float(exact), rel=1e-10)
    for x, y in zip(got, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-9 * np.abs(y).max())


def test_refining_proves_more_and_keeps_the_identity(matrix):
    right = np.linalg.svd(matrix)[2][:4].T
    crude = right @ np.linalg.pinv(matrix @ right)
    better, weights = refine_lower(matrix, right, crude)
    np.testing.assert_allclose(weights @ matrix @ better, better, atol=1e-9)
    assert norm(weights) < 0.9 * norm(crude)


def test_refining_never_hurts():
    """At a witness that is already the best (a permutation) and after a long search."""
    eye = np.eye(5)
    _, weights = refine_lower(eye, eye[:, :3], eye[:, :3] @ eye[:3])
    assert norm(weights) <= 1
    a = np.asarray(attention(np.linspace(-1, 1, 8)[:, None], np.linspace(-1, 1, 8)[:, None], 4.0), np.float64)
    (found,), _ = search_lower(a, np.array([3]), np.array([0]), 2000, np.float32, np.random.default_rng(0), 4)
    assert norm(refine_lower(a, *found)[1]) <= norm(found[1])


def test_a_singular_pencil_has_no_value():
    eye = np.eye(3)
    value, _ = value_and_gradient(eye, np.zeros((2, 3)), eye[:, :2], eye, 0.1, 0.1)
    assert value == np.inf


def test_a_witness_of_float32_comes_back_to_float64(rng):
    """Near full rank, where the numbers of a witness span orders, float32 alone loses several per cent."""
    x = rng.normal(size=(16, 2))
    a = np.asarray(attention(x, x, 0.5), np.float64)
    single = error_profile(a, [13], effort="fast", precision="float32")
    double = error_profile(a, [13], effort="fast", precision="float64")
    assert double.lower[1] < 1e-4  # as small as in the heads where it mattered
    assert single.lower[1] >= 0.98 * double.lower[1]


def test_completion_of_a_start_is_the_start(matrix, rng):
    """Z = C and L = (A R)^+ stand for the witness itself: the descent starts from what was found."""
    right = np.linalg.qr(rng.normal(size=(11, 3)))[0]
    weights = right @ np.linalg.pinv(matrix @ right)
    _, c = complete(matrix, np.linalg.pinv(matrix @ right), right, weights)
    np.testing.assert_allclose(c, weights, atol=1e-10)
