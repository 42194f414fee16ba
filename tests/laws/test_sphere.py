"""The sphere law: against closed forms, an LP oracle, and the theory's exponents."""

import math

import numpy as np
import pytest
from flint import ctx
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.special import ive

from attnlab.laws import _canonical, _sphere, fit_slope, sphere_bracket


@pytest.mark.parametrize(("beta", "lower", "upper"), [(16, 57, 121), (64, 232, 484), (256, 925, 1936)])
def test_published_values_for_d3(beta, lower, upper):
    bracket = sphere_bracket(3, beta, 0.1)
    assert (bracket.lower, bracket.upper) == (lower, upper)


@pytest.mark.parametrize("d", range(2, 9))
@pytest.mark.parametrize("eps", [0.05, 0.3])
def test_both_ends_for_every_dimension(d, eps):
    small, large = sphere_bracket(d, 8.0, eps), sphere_bracket(d, 128.0, eps)
    for bracket in (small, large):
        assert 1 <= bracket.lower <= bracket.upper
        assert bracket.upper_error <= eps
    assert large.lower > small.lower
    assert large.upper > small.upper


@pytest.mark.parametrize("d", [2, 3, 4, 5])
def test_slopes_reach_theory(d):
    betas = 2.0 ** np.arange(6, 15)
    brackets = [sphere_bracket(d, beta, 0.1) for beta in betas]
    assert abs(fit_slope(betas, [b.lower for b in brackets]).slope - (d - 1) / 2) < 0.01
    assert abs(fit_slope(betas, [b.upper for b in brackets]).slope - (d - 1) / 2) < 0.03


@settings(max_examples=40)
@given(st.integers(2, 8), st.floats(0, 300), st.floats(0.01, 0.95))
def test_ends_are_ordered_and_monotone_in_eps(d, beta, eps):
    bracket, looser = sphere_bracket(d, beta, eps), sphere_bracket(d, beta, min(0.99, 1.5 * eps))
    assert bracket.lower <= bracket.upper
    assert looser.lower <= bracket.lower
    assert looser.upper <= bracket.upper


def test_smallest_eps_allowed():
    bracket = sphere_bracket(3, 4.0, 1e-12)
    assert bracket.lower <= bracket.upper <= 1.1 * bracket.lower


def test_degenerate_cases():
    flat = sphere_bracket(4, 0.0, 0.1)
    assert (flat.lower, flat.upper) == (1, 1)
    free = sphere_bracket(4, 50.0, 1.0)
    assert (free.lower, free.upper) == (0, 0)


@pytest.mark.parametrize("degree", [0, 1, 4, 9])
def test_error_for_d3_is_the_chebyshev_sign_integral(degree):
    beta = 12.0
    cuts = np.concatenate([[-1], np.sort(np.cos(np.arange(1, degree + 2) * np.pi / (degree + 2))), [1]])
    signs = (-1.0) ** np.arange(cuts.size - 1)
    exact = abs(signs @ np.diff(np.exp(beta * (cuts - 1)))) / (1 - math.exp(-2 * beta))
    assert float(_canonical.l1_error(degree, 3, beta)) == pytest.approx(exact, rel=1e-12)


def test_error_for_d2_is_an_alternating_bessel_series():
    beta, degree = 20.0, 7
    k = np.arange(40)
    orders = (2 * k + 1) * (degree + 1)
    exact = 4 / np.pi * np.sum((-1.0) ** k / (2 * k + 1) * ive(orders, beta) / ive(0, beta))
    assert float(_canonical.l1_error(degree, 2, beta)) == pytest.approx(abs(exact), rel=1e-12)


@pytest.mark.parametrize("d", [2, 4, 5, 8])
@pytest.mark.parametrize("degree", [0, 3, 6])
def test_error_agrees_with_linear_programming(d, degree):
    """Best L1 approximation as an LP on a Gauss-Legendre grid, which only approximates the
    integral."""
    beta = 6.0
    nodes, weights = np.polynomial.legendre.leggauss(400)
    theta = np.pi / 2 * (nodes + 1)
    w = weights * np.sin(theta) ** (d - 2)
    f = np.exp(beta * (np.cos(theta) - 1))
    f, w = f * w.sum() / (w @ f), w / w.sum()
    basis = np.cos(np.outer(theta, np.arange(degree + 1)))
    eye = np.eye(theta.size)
    cost = np.concatenate([np.zeros(degree + 1), w])
    rows = np.block([[basis, -eye], [-basis, -eye]])
    bounds = [(None, None)] * (degree + 1) + [(0, None)] * theta.size
    best = linprog(cost, rows, np.concatenate([f, -f]), bounds=bounds).fun
    certified = float(_canonical.l1_error(degree, d, beta))
    assert certified == pytest.approx(best, rel=2e-3)
    assert certified == pytest.approx(_canonical.estimate_l1_error(degree, d, beta), rel=1e-9)


@pytest.mark.parametrize("d", [2, 3, 6])
def test_wrong_nodes_only_loosen_the_bound(d, monkeypatch):
    """The certificate must not trust the nodes: perturbed ones still give a valid, larger bound."""
    exact = float(_canonical.l1_error(9, d, 10.0))
    nodes = _canonical.canonical_nodes(9, d)
    for shift in (1e-6, 1e-4):
        monkeypatch.setattr(_canonical, "canonical_nodes", lambda *_, s=shift: nodes * (1 + s))
        assert float(_canonical.l1_error(9, d, 10.0).upper()) > exact
    monkeypatch.setattr(_canonical, "canonical_nodes", lambda *_: nodes * 0.5)
    assert float(_canonical.l1_error(9, d, 10.0)) == 1.0  # useless nodes prove only the trivial bound
    for bad in (nodes[::-1], nodes * np.nan, nodes + 1.0):
        monkeypatch.setattr(_canonical, "canonical_nodes", lambda *_, b=bad: b)
        assert float(_canonical.l1_error(9, d, 10.0)) == 1.0


@pytest.mark.parametrize("d", [2, 3, 7])
@pytest.mark.parametrize("beta", [0.01, 3.0, 500.0])
def test_eigenvalue_enclosures(d, beta):
    with ctx.workprec(_canonical.PRECISION):
        values = _sphere._eigenvalues(d, beta)[:12]
    order = d / 2 - 1
    expected = ive(order + np.arange(12), beta) / ive(order, beta)
    assert np.allclose([float(v) for v in values], expected, rtol=1e-11)
    assert all(float(v.rad()) <= 1e-20 * float(v.mid()) for v in values)


def test_dimension_is_the_number_of_harmonics():
    assert [_canonical.polynomial_dimension(l, 3) for l in range(-1, 4)] == [0, 1, 4, 9, 16]
    assert [_canonical.polynomial_dimension(l, 2) for l in range(-1, 4)] == [0, 1, 3, 5, 7]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((1, 1.0, 0.1), "d "), ((2.5, 1.0, 0.1), "d "), ((3, -1.0, 0.1), "beta"),
     ((3, math.inf, 0.1), "beta"), ((3, 1.0, 1e-30), "eps"), (("3", 1.0, 0.1), "d "),
     ((math.nan, 1.0, 0.1), "d "), ((3, 1.0, 0.0), "eps"), ((3, 1.0, math.nan), "eps")],
)  # fmt: skip
def test_bad_input(arguments, name):
    with pytest.raises(ValueError, match=name):
        sphere_bracket(*arguments)
