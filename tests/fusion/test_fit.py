"""fit: known answers, the table of best errors, contracts of the lane search, and bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab import Head, sigmoid_sum
from attnlab.fusion import Box, fit, fit_many, sup_error
from attnlab.fusion import _fit_search as lane_search
from attnlab.fusion._fit_parts import composed, missed_point
from attnlab.fusion._fit_starts import make_starts, product_atoms
from attnlab.fusion._function import Function, head_values
from attnlab.fusion._polish import Samples, fine_samples, jacobian, polish


def start_lanes(d=2, m=4, starts=12, radius=2.0, seed=0):
    box = Box(radius, d)
    target = Function(sigmoid_sum(d), box)
    lanes, counts = make_starts(target, box, [2, m - 1], starts, m, np.random.default_rng(seed))
    points = box.grid(25)  # as many as the search itself takes, so that tests share compilations
    return lanes, counts, points, target(points)


@pytest.fixture(scope="module")
def four():
    """Fits of W_2 on |q| <= 4 with two and three atoms, shared by the tests below."""
    two, three = fit_many(sigmoid_sum(2), [2, 3], Box(4.0, 2), key=0, starts=12, polished=1)
    return {2: two, 3: three}


@pytest.mark.parametrize(
    ("m", "radius", "best"), [(2, 1.0, 0.00927), (2, 4.0, 0.1993), (3, 4.0, 0.1964), (3, 8.0, 0.4028)]
)
def test_two_sigmoids_meet_the_best_known_errors(four, m, radius, best):
    """Best errors found by an earlier dense-grid search; here the whole box is certified."""
    w, box = sigmoid_sum(2), Box(radius, 2)
    found = four[m] if radius == 4 else fit_many(w, [m], box, key=0, starts=8, polished=1)[0]
    assert sup_error(w, found.head, box, 1e-4).hi <= best
    assert "estimate" in repr(found)


def test_three_sigmoids_with_seven_atoms():
    w, box = sigmoid_sum(3), Box(4.0, 3)
    (found,) = fit_many(w, [7], box, key=0, starts=12, polished=1)
    certified = sup_error(w, found.head, box, 1e-3)
    assert certified.hi <= 0.1321
    assert found.sup_error_estimate == pytest.approx(certified.lo, rel=0.02)


def test_an_untouched_head_times_a_fit_of_the_others():
    """Four atoms for W_3 are two for W_2 times two, and never worse; here with one start."""
    w = sigmoid_sum(3)
    parts = composed(Function(w, Box(2.0, 3)), 4, lambda heads, m, box: two_close(m))
    assert len(parts) == 1  # the three ways to leave out one head are the same problem
    keys, values, logs = parts[0]
    assert keys.shape == (4, 3)
    q = np.array([[0.5, -1.0, 2.0]])
    expected = 1 / (1 + np.exp(-0.5)) + head_values(*two_close(2), q[:, 1:])
    np.testing.assert_allclose(head_values(keys, values, logs, q), expected, rtol=1e-12)


def two_close(m):
    """Two atoms that make a nearly linear function of two coordinates."""
    return np.array([[0.1, 0.1], [-0.1, -0.1]])[:m], np.array([[6.0], [-4.0]])[:m], np.zeros(m)


def test_points_that_samples_miss_are_found():
    """A narrow bump between all samples: branch and bound sees it."""
    bump = Head([[0.0], [300.0], [600.0]], [0.0, 1.0, 0.0], [0.0, -300.0 * 0.7041, -600.0 * 0.7045])
    function = Function(bump, Box(1.0, 1))
    samples = Samples(
        function, np.array([[-1.0], [0.5], [1.0]]), function(np.array([[-1.0], [0.5], [1.0]])), True
    )
    flat = (np.zeros((1, 1)), np.zeros((1, 1)), np.zeros(1))
    point = missed_point(flat, samples.error(flat), samples)
    assert point is not None
    assert abs(point[0] - 0.7043) < 0.01


def test_exact_at_the_product_and_sharp_limit():
    """2^d atoms are exact; one atom reaches half the oscillation, sigma(R) - 1/2 for d = 1."""
    one, two = fit_many(sigmoid_sum(1), [1, 2], Box(4.0, 1), key=0, starts=8)
    assert one.sup_error_estimate == pytest.approx(1 / (1 + np.exp(-4.0)) - 0.5, rel=1e-6)
    assert two.sup_error_estimate < 1e-12
    w4 = sigmoid_sum(4)
    assert sup_error(w4, fit(w4, 16, Box(1.0, 4), starts=8).head, Box(1.0, 4), 1e-4).hi < 1e-4


def test_a_head_is_recovered_from_random_starts():
    """A callable gives no product to start from."""
    truth = Head([[0.0, 0.5], [1.0, -1.0], [-1.5, 0.0]], [0.0, 1.0, -2.0], [0.0, 0.3, -0.2])
    found = fit(lambda q: truth(q), 3, Box(2.0, 2), key=3, starts=16)
    assert found.sup_error_estimate < 1e-5


def test_vector_values():
    truth = Head([[0.0], [1.5]], [[0.0, 1.0], [1.0, -1.0]])
    found = fit(lambda q: truth(q), 2, Box(2.0, 1), key=0, starts=12)
    assert found.head.value_shape == (2,)
    assert found.sup_error_estimate < 1e-5


def test_given_points_replace_the_box(four, rng):
    q = rng.uniform(-1, 1, (625, 2))  # as many as the nodes of a box, so no new compilation
    (found,) = fit_many(sigmoid_sum(2), [2], Box(4.0, 2), key=0, starts=8, points=q, polished=1)
    assert found.sup_error_estimate < 0.2 * four[2].sup_error_estimate


def test_more_atoms_from_a_warm_start_are_not_worse(four):
    w, box = sigmoid_sum(2), Box(4.0, 2)
    (three,) = fit_many(w, [3], box, key=1, starts=1, polished=1, warm=[four[2]])
    assert three.sup_error_estimate <= four[2].sup_error_estimate + 1e-6
    (back,) = fit_many(w, [2], box, key=1, starts=1, polished=1, warm=[four[3]])
    assert back.sup_error_estimate <= 1.01 * four[2].sup_error_estimate


def test_one_compilation_per_shape(monkeypatch):
    """Atom counts, radii and step numbers are data."""
    traces = []
    inner = lane_search._lane
    monkeypatch.setattr(lane_search, "_lane", lambda *a: traces.append(1) or inner(*a))
    for m, radius, steps in ((4, 2.0, 3), (4, 5.0, 4)):
        lanes, _, points, wanted = start_lanes(m=m, radius=radius, starts=19)
        lane_search.search(lanes, points[:70], wanted[:70], steps)
    assert len(traces) <= 1


def test_lanes_equal_single_runs_and_eager():
    lanes, _, points, wanted = start_lanes(starts=3)
    together = lane_search.search(lanes, points, wanted, 3, jnp.float64)
    for lane in (0, 4):
        alone = lane_search.search(lanes.take(np.array([lane])), points, wanted, 3, jnp.float64)
        np.testing.assert_allclose(alone.error[0], together.error[lane], rtol=1e-8)
    with jax.disable_jit():
        keys, logs, values, mask = (jnp.asarray(x[0]) for x in lanes)
        data = jnp.asarray(points), jnp.asarray(wanted)
        *_, top, _, bad = lane_search._lane(keys, logs, values, mask, *data, 3)
    assert not bad
    np.testing.assert_allclose(float(top), together.error[0], rtol=1e-8)


def test_float32_search_then_polish_loses_nothing():
    lanes, counts, points, wanted = start_lanes(starts=8, radius=4.0)
    samples = fine_samples(Function(sigmoid_sum(2), Box(4.0, 2)), Box(4.0, 2))
    ends = {}
    for dtype in (jnp.float32, jnp.float64):
        found = lane_search.search(lanes, points, wanted, 100, dtype)
        assert found.lanes.keys.dtype == dtype
        best = np.flatnonzero(counts == 3)[found.error[counts == 3].argmin()]
        ends[dtype] = polish(found.lanes.head(best), samples)[1]
    assert ends[jnp.float32] <= ends[jnp.float64] * (1 + 1e-3)


def test_masked_atoms_do_not_matter():
    lanes, counts, points, wanted = start_lanes(starts=4)
    lane = np.flatnonzero(counts == 2)[:1]
    other = lanes.take(lane)
    other.keys[:, 2:], other.logs[:, 2:] = 1e3, 50.0
    a = lane_search.search(lanes.take(lane), points, wanted, 10, jnp.float64)
    b = lane_search.search(other, points, wanted, 10, jnp.float64)
    np.testing.assert_allclose(a.error, b.error, rtol=1e-10)


def test_diverged_lanes_are_reported_and_left_out():
    lanes, _, points, wanted = start_lanes(starts=4)
    lanes.keys[1] = np.nan
    found = lane_search.search(lanes, points, wanted, 5)
    assert found.code[1] == lane_search.LaneCode.DIVERGED
    assert np.isnan(found.error[1])
    assert np.isfinite(np.delete(found.error, 1)).all()


def test_gradients_against_finite_differences(rng):
    """The Jacobians of both precisions' searches, and the closed-form values as functions of the keys."""
    keys, values, logs = rng.normal(size=(3, 2)), rng.normal(size=(3, 1)), rng.normal(size=3)
    points, wanted, mask = rng.normal(size=(20, 2)), rng.normal(size=(20, 1)), jnp.ones(3, bool)
    keys, logs, values, points, wanted = map(jnp.asarray, (keys, logs, values, points, wanted))
    _, ours = lane_search.residual_and_jacobian((keys, logs, values), mask, points, wanted)
    np.testing.assert_allclose(
        ours,
        jacobian((np.asarray(keys), np.asarray(values), np.asarray(logs)), np.asarray(points)),
        rtol=1e-12,
        atol=1e-14,
    )
    auto = jax.jit(jax.jacobian(lambda p: lane_search.residual(p, mask, points, wanted)))(
        (keys, logs, values)
    )
    table = np.concatenate([auto[0], auto[1][..., None], auto[2]], -1).reshape(20, -1)
    np.testing.assert_allclose(ours, table, rtol=1e-10, atol=1e-12)

    @jax.jit
    def loss(k):
        v = lane_search.best_values(k, jnp.asarray(logs), jnp.asarray(mask), points, wanted)
        return jnp.sum(
            lane_search.residual((k, jnp.asarray(logs), v), jnp.asarray(mask), points, wanted) ** 2
        )

    slope, step = jax.jit(jax.grad(loss))(jnp.asarray(keys)), 1e-6
    for i in range(3):
        for j in range(2):
            move = jnp.zeros_like(keys).at[i, j].set(step)
            finite = (loss(keys + move) - loss(keys - move)) / (2 * step)
            assert float(slope[i, j]) == pytest.approx(float(finite), rel=1e-5, abs=1e-7)


def test_product_merges_equal_keys():
    atoms = product_atoms(Function(sigmoid_sum(3), Box(1.0, 3)))
    assert atoms is not None
    assert len(atoms[0]) == 8
    assert product_atoms(Function(lambda q: q.sum(), Box(1.0, 3))) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_atoms": 0}, "num_atoms"),
        ({"num_atoms": 2.5}, "num_atoms"),
        ({"starts": 0}, "starts"),
        ({"box": Box(float("inf"), 2)}, "infinite radius"),
        ({"box": Box(1.0, 3)}, "dimension"),
        ({"target": lambda q: q[0] * jnp.nan}, "NaN"),
        ({"target": lambda q: jnp.outer(q, q)}, "shape"),
        ({"points": np.zeros((3, 2))}, "too few"),
        ({"points": np.zeros((30, 3))}, "points must be"),
        ({"points": np.full((30, 2), np.nan)}, "points must be"),
    ],
)
def test_bad_input(change, message):
    arguments = {"target": sigmoid_sum(2), "num_atoms": 2, "box": Box(1.0, 2), "starts": 4} | change
    with pytest.raises(ValueError, match=message):
        fit(**arguments)
