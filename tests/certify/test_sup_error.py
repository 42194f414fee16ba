"""Sup-error certificates: valid on every sample, tight, independent of the search, hard to fool."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.certify import Certificate, load
from attnlab.certify._head_series import HeadSeries, polynomial_range
from attnlab.certify._power_series import exponents
from attnlab.certify._sup_error import ArbDifference, Atoms, Difference

seeds = st.integers(0, 2**32 - 1)


def sigmoids(d):
    zero = np.zeros(d)
    return [Atoms(np.stack([zero, e]), np.array([[0.0], [1.0]]), np.zeros(2)) for e in np.eye(d)]


def value(head, q):
    z = q @ head.keys.T + head.logs
    w = np.exp(z - z.max(-1, keepdims=True))
    return (w @ head.values)[..., 0] / w.sum(-1)


def random_head(rng, d):
    n = rng.integers(1, 6)
    return Atoms(
        rng.normal(size=(n, d)) * rng.choice([0.3, 1, 4]),
        rng.normal(size=(n, 1)) * rng.choice([1, 30, 1000]),
        rng.normal(size=n),
    )


def certificate(lower: float = 0.499, upper: float = 0.501, **changes) -> Certificate:
    """1/2 + sigma(q1 + q2) against W_2 on |q| <= 20: within 1/2, sharp at the corners (20, -20)."""
    subject = {
        "head_keys": np.array([[0.0, 0.0], [1.0, 1.0]]),
        "head_values": np.array([[0.5], [1.5]]),
        "head_log_weights": np.zeros(2),
        "target_keys": np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]),
        "target_values": np.array([[0.0], [1.0], [0.0], [1.0]]),
        "target_log_weights": np.zeros(4),
        "target_sizes": np.array([2, 2]),
        "radius": np.array([20.0, 20.0]),
    }
    witness = {"order": np.array(10), "point": np.array([20.0, 20.0])}
    for name, change in changes.items():
        (witness if name in witness else subject)[name] = change
    return Certificate("sup-error", {"lower": lower, "upper": upper}, witness, subject)


@pytest.mark.parametrize("arb", [False, True])
def test_known_answer(arb):
    verdict = certificate().verify(arb=arb)
    assert verdict.holds
    assert 0.4999 < verdict.bound <= 0.501
    assert "2 atoms" in verdict.statement


@pytest.mark.parametrize("ends", [(0.3, 0.49), (0.501, 0.6), (-1.0, 0.6), (0.1, math.inf), (True, 0.6)])
def test_rejects_false_claims(ends):
    assert not certificate(*ends).verify()


@pytest.mark.parametrize(
    "changes",
    [
        {"point": np.array([21.0, 0.0])},
        {"point": np.array([np.nan, 0.0])},
        {"point": np.zeros(3)},
        {"order": np.array(0)},
        {"order": np.array(10**6)},
        {"order": np.array("many")},
        {"radius": np.array([20.0])},
        {"radius": np.array([20.0, -1.0])},
        {"radius": np.array([20.0, np.inf])},
        {"head_keys": np.zeros((3, 2))},
        {"head_values": np.array([[0.5], [np.nan]])},
        {"head_log_weights": np.array([-np.inf, -np.inf])},
        {"target_sizes": np.array([2, 3])},
        {"target_sizes": np.array([4, 0])},
        {"target_values": np.zeros((4, 2))},
    ],
)
def test_rejects_bad_input(changes):
    assert not certificate(**changes).verify()


def test_tampered_file_fails(tmp_path):
    certificate().save(tmp_path / "c.npz")
    assert load(tmp_path / "c.npz").verify()
    entries = dict(np.load(tmp_path / "c.npz"))
    entries["claim"] = np.array('{"lower": 0.0, "upper": 0.1}')
    np.savez(tmp_path / "d.npz", **entries)
    assert not load(tmp_path / "d.npz").verify()


def test_absent_atoms_do_not_count():
    assert certificate(
        head_keys=np.array([[0.0, 0.0], [1.0, 1.0], [9.0, 9.0]]),
        head_values=np.array([[0.5], [1.5], [99.0]]),
        head_log_weights=np.array([0.0, 0.0, -np.inf]),
    ).verify()


@settings(max_examples=40)
@given(seeds)
def test_enclosures_contain_samples(seed):
    rng = np.random.default_rng(seed)
    d, order = int(rng.integers(1, 4)), int(rng.integers(1, 10))
    head, target = random_head(rng, d), [random_head(rng, d) for _ in range(rng.integers(1, 4))]
    f = Difference(head, target, 0, order)
    centre, half = rng.normal(size=(12, d)) * 3, 10 ** rng.uniform(-4, 0.5, size=(12, d))
    low, high, _ = f.bounds(centre, half, -1.0)
    corners = np.stack(np.meshgrid(*[[-1.0, 1.0]] * d), -1).reshape(-1, d)
    for c, r, a, b in zip(centre, half, low, high, strict=True):
        q = c + r * np.concatenate([corners, rng.uniform(-1, 1, (200, d))])
        v = value(head, q) - sum(value(t, q) for t in target)
        assert a - 1e-11 <= v.min()
        assert v.max() <= b + 1e-11


def test_arb_and_float_enclosures_agree(rng):
    head, target = random_head(rng, 2), sigmoids(2)
    centre, half = rng.normal(size=(6, 2)), 10 ** rng.uniform(-3, 0, size=(6, 2))
    plain = Difference(head, target, 0, 6).bounds(centre, half, -1.0)
    exact = ArbDifference(head, target, 0, 6).bounds(centre, half, -1.0)
    for a, b in zip(plain[:2], exact[:2], strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-2, atol=1e-9)


@pytest.mark.parametrize("order", [2, 4, 8])
def test_convergence_order(order):
    """Halving a small box divides the bound on truncation by 2^(n+1); rounding stays at 1e-13."""
    head = Atoms(np.array([[0.0], [1.0], [2.5]]), np.array([[0.0], [3.0], [1.0]]), np.zeros(3))
    part = HeadSeries(head.keys, head.values[:, 0], head.logs, order)
    centre = np.full((3, 1), 0.3)
    poly = part.polynomial(centre, np.array([[0.02], [0.01], [0.0]]))
    assert poly.remainder[0] / poly.remainder[1] == pytest.approx(2.0 ** (order + 1), rel=0.1)
    assert poly.error[2] < 1e-13


def test_remainder_is_sharp_for_the_logistic_function():
    """Near its pole at i pi the bound follows the true Taylor coefficients of sigma."""
    order = 13
    part = HeadSeries(np.array([[0.0], [1.0]]), np.array([0.0, 1.0]), np.zeros(2), order)
    poly = part.polynomial(np.zeros((1, 1)), np.ones((1, 1)))
    q = np.linspace(-1, 1, 401)
    powers = q[:, None] ** exponents(1, order).table[:, 0]
    error = np.abs(powers @ poly.coefficients[:, 0] - 1 / (1 + np.exp(-q))).max()
    assert error <= poly.error[0] <= 300 * error


def test_remainder_does_not_see_the_size_of_values():
    """Two atoms with close keys and large values make a linear function: 1,000 times the values, 1,000
    times closer keys, the same head, and hardly a larger bound."""
    bounds = []
    for size in (10.0, 10_000.0):
        part = HeadSeries(
            np.array([[0.0], [1.0], [1 + 1 / size]]), np.array([0.0, -size, size]), np.zeros(3), 8
        )
        bounds.append(part.polynomial(np.zeros((1, 1)), np.full((1, 1), 0.5)).remainder[0])
    assert bounds[1] < 2 * bounds[0]


@given(seeds)
def test_polynomial_range_contains_values(seed):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 4))
    terms = exponents(d, int(rng.integers(1, 5)))
    a = rng.normal(size=(len(terms.table), 1))
    low, high, _ = polynomial_range(terms, a)
    y = np.concatenate([rng.uniform(-1, 1, (300, d)), rng.choice([-1.0, 1.0], (20, d))])
    values = terms.monomials(y.T).T @ a[:, 0]
    assert low[0] <= values.min()
    assert values.max() <= high[0]


def test_polynomial_range_is_exact_on_a_concave_quadratic():
    terms = exponents(2, 2)
    a = np.zeros((6, 1))
    for i, row in enumerate(terms.table.tolist()):
        a[i] = {(0, 0): 1.0, (2, 0): -1.0, (0, 2): -1.0, (1, 1): 0.5}.get(tuple(row), 0.0)
    assert polynomial_range(terms, a)[1][0] == pytest.approx(1.0, abs=1e-12)
