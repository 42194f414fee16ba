"""sup_error: certified brackets on known heads, targets of the documentation, and bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab import Head, HeadSum, sigmoid_sum
from attnlab.certify import load
from attnlab.fusion import Box, sup_error
from attnlab.fusion._function import Function
from attnlab.heads import product_head, random_head


def sampled(target, head, box, rng, count=4000):
    """Largest difference at random points, in NumPy."""
    q = rng.uniform(-box.radius, box.radius, (count, box.dim))
    return np.abs(Function(target, box)(q) - Function(head, box)(q)).max()


def half_head():
    """1/2 + sigma(q1 + q2): within exactly 1/2 of W_2 on the plane."""
    return Head([[0.0, 0.0], [1.0, 1.0]], [0.5, 1.5])


def perturbed_product(rng, d, size):
    head = product_head(sigmoid_sum(d))
    move = lambda x: np.asarray(x) + size * rng.normal(size=x.shape)
    return Head(move(head.keys), move(head.values), move(head.log_weights))


def test_known_value():
    """At (R, R): |2 sigma(R) - 1/2 - sigma(2 R)|; the supremum on the box is there for large R."""
    found = sup_error(sigmoid_sum(2), half_head(), Box(20.0, 2), 1e-6)
    exact = abs(2 / (1 + np.exp(-20.0)) - 0.5 - 1 / (1 + np.exp(-40.0)))
    assert found.certified
    assert found.lo <= exact <= found.hi
    assert found.relative_gap < 1e-6
    assert "certified" in repr(found)


@pytest.mark.parametrize(("d", "radius", "size"), [(1, 4, 0.1), (2, 8, 0.1), (3, 4, 0.01), (3, 8, 0.05)])
def test_gap_of_one_percent_and_certificate(rng, tmp_path, d, radius, size):
    w, head, box = sigmoid_sum(d), perturbed_product(rng, d, size), Box(radius, d)
    found = sup_error(w, head, box)
    assert sampled(w, head, box, rng) <= found.hi
    assert found.relative_gap <= 0.01
    assert abs(float(w(found.point) - head(found.point))) == pytest.approx(found.lo, rel=1e-9)
    assert found.certificate is not None
    found.certificate.save(tmp_path / "c.npz")
    verdict = load(tmp_path / "c.npz").verify()
    assert verdict.holds
    assert verdict.bound <= found.hi


@pytest.mark.parametrize("d", [1, 2, 3])
def test_product_is_exact(d):
    """The product fusion equals W_d: the bound on its error is rounding and remainder, below 1e-6."""
    w = sigmoid_sum(d)
    found = sup_error(w, product_head(w), Box(4.0, d))
    assert found.hi < 1e-6


def test_vector_values_and_unequal_heads(rng):
    keys = jax.random.split(jax.random.key(0), 3)
    target = HeadSum([random_head(keys[0], 3, 2, 2), random_head(keys[1], 4, 2, 2)])
    head = random_head(keys[2], 5, 2, 2)
    found = sup_error(target, head, Box(2.0, 2))
    assert sampled(target, head, Box(2.0, 2), rng) <= found.hi
    assert found.relative_gap <= 0.01


def test_four_dimensions(rng):
    """One percent here too; a small budget widens the interval, and it stays a proof."""
    w, head = sigmoid_sum(4), perturbed_product(rng, 4, 0.05)
    found = sup_error(w, head, Box(2.0, 4))
    assert sampled(w, head, Box(2.0, 4), rng) <= found.hi
    assert found.relative_gap <= 0.01
    assert found.certificate is not None
    assert found.certificate.verify()
    assert sup_error(w, head, Box(2.0, 4), budget=500).hi >= found.hi


def test_callable_is_labelled_as_an_estimate():
    found = sup_error(lambda q: jax.nn.sigmoid(q).sum(), half_head(), Box(4.0, 2))
    assert not found.certified
    assert found.hi == np.inf
    assert found.certificate is None
    assert "estimate" in repr(found)


@pytest.mark.parametrize("radius", [0, -1.0, float("nan"), "wide"])
def test_box_rejects_radius(radius):
    with pytest.raises(ValueError, match="radius"):
        Box(radius, 2)


@pytest.mark.parametrize("dim", [0, -1, 1.5, True])
def test_box_rejects_dim(dim):
    with pytest.raises(ValueError, match="dim"):
        Box(1.0, dim)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tol": 0.0}, "tol"),
        ({"tol": float("nan")}, "tol"),
        ({"budget": 0}, "budget"),
        ({"box": Box(1.0, 3)}, "dimension"),
        ({"box": Box(float("inf"), 2)}, "infinite radius"),
        ({"box": 4.0}, "Box"),
        ({"target": 3.0}, "target must be"),
        ({"target": lambda q: q[0] * jnp.nan}, "NaN"),
        ({"target": lambda q: q @ q[:1]}, "failed"),
        ({"target": lambda q: jnp.outer(q, q)}, "shape"),
        ({"target": lambda q: q}, "values of shape"),
        ({"head": sigmoid_sum(2)}, "head must be a Head"),
    ],
)
def test_bad_input(change, message):
    arguments = {"target": sigmoid_sum(2), "head": half_head(), "box": Box(4.0, 2)} | change
    with pytest.raises(ValueError, match=message):
        sup_error(**arguments)
