"""Distillation on given queries: known answers, the baseline, and bad input."""

import numpy as np
import pytest

from attnlab import Head, HeadSum, sigmoid_sum
from attnlab.fusion import _distill
from attnlab.fusion._distill import distill, select_atoms
from attnlab.fusion._function import head_arrays, head_values


def test_both_recover_the_product(rng):
    """With 2^d atoms the product of W_d is exact: selection finds it, and descent does not leave it."""
    q = rng.uniform(-3, 3, (300, 2))
    selected = select_atoms(sigmoid_sum(2), [1, 4], q)
    assert selected.errors[1] < 1e-9 < selected.errors[0]
    fitted = distill(sigmoid_sum(2), [1, 3, 4], q, key=0, starts=3, steps=300)
    assert fitted.errors[2] < fitted.errors[1] < fitted.errors[0]
    assert fitted.lane_errors.shape == (3, 3)


def test_errors_are_those_of_the_heads_returned(rng):
    target = sigmoid_sum(3)
    q, other = rng.normal(size=(200, 3)), rng.normal(size=(100, 3))
    found = distill(target, [2, 4], q, key=1, starts=2, steps=50)
    wanted = np.asarray(sum(head_values(*head_arrays(h), q) for h in target.heads))
    np.testing.assert_allclose(found.error_on(q, wanted), found.errors, rtol=1e-12)
    wanted = np.asarray(sum(head_values(*head_arrays(h), other) for h in target.heads))
    assert all(e > 0 for e in found.error_on(other, wanted))


def test_fit_beats_a_subset_where_fewer_atoms_than_the_product_are_allowed(rng):
    q = rng.uniform(-2, 2, (400, 3))
    fitted = distill(sigmoid_sum(3), [4], q, key=0, starts=4, steps=600)
    assert fitted.errors[0] < select_atoms(sigmoid_sum(3), [4], q).errors[0]


def test_steps_rate_starts_and_smaller_counts_do_not_recompile(rng, monkeypatch):
    traces = []
    lane = _distill._adam
    monkeypatch.setattr(_distill, "_adam", lambda *a: traces.append(1) or lane(*a))
    for counts, starts, steps in (([1, 3], 2, 2), ([2, 3], 5, 3)):
        distill(sigmoid_sum(2), counts, rng.normal(size=(21, 2)), key=0, starts=starts, steps=steps)
    assert len(traces) == 1


def test_held_out_queries_keep_the_fit_honest(rng):
    """On the convex hull of few queries the error elsewhere stays near the error reported."""
    heads = [Head(rng.normal(size=(10, 6)), rng.normal(size=(10, 2))) for _ in range(2)]
    corners = 2 * rng.normal(size=(12, 6))
    hull = lambda n: rng.dirichlet(np.full(12, 0.3), n) @ corners
    found = distill(HeadSum(heads), [8], hull(1000), key=0, starts=2, steps=200)
    other = hull(2000)
    wanted = np.asarray(sum(head_values(*head_arrays(h), other) for h in heads))
    assert found.error_on(other, wanted)[0] < 2 * found.errors[0]


@pytest.mark.parametrize(
    ("queries", "counts", "message"),
    [
        (np.zeros((20, 3)), [2], "queries"),
        (np.zeros((5, 2)), [2], "at least 16"),
        (np.full((20, 2), np.nan), [2], "queries"),
        (np.zeros((20, 2)), [0], "counts"),
    ],
)
def test_bad_input(queries, counts, message):
    with pytest.raises(ValueError, match=message):
        distill(HeadSum(sigmoid_sum(2).heads), counts, queries)
