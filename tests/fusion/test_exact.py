"""Exact heads: what they accept, what they refuse, and that they mean what they say."""

from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.fusion import ExactHead, exact_sigmoid_sum


def test_numbers_are_read_exactly():
    head = ExactHead([[0], [1]], ["0.1", "1/3"], ["-2/7", " 1e-2 "])
    assert head.weights == (Fraction(1, 10), Fraction(1, 3))
    assert head.values == (Fraction(-2, 7), Fraction(1, 100))
    assert ExactHead([0, 1], np.array([1, 2]), [0, 1]).weights == (1, 2)
    assert ExactHead(jnp.array([[0], [1]]), jnp.array([1, 2]), jnp.array([0, 1])).weights == (1, 2)
    floats = ExactHead([0.0, 1.0], [0.1, 1], [0, 0.5], exact_floats=True)
    assert floats.weights[0] == Fraction(0.1) != Fraction(1, 10)


def test_repeated_keys_are_merged_without_changing_the_head():
    head = ExactHead([[1], [0], [1]], [1, 2, 3], [[4, 0], [1, 1], [0, 8]])
    assert head.num_atoms == 2
    assert head.weights == (2, 4)
    assert head.values == ((1, 1), (1, 6))
    assert head.at([2]) == (1, 5)


def test_value_at_a_point_and_in_floats():
    head = ExactHead([[0, 0], [1, -2]], [1, "3/2"], [[0, 1], [1, 3]])
    x = (Fraction(2, 3), Fraction(5, 4))
    mass = Fraction(3, 2) * x[0] / x[1] ** 2
    assert head.at(x) == (mass / (1 + mass), (1 + 3 * mass) / (1 + mass))
    q = np.log(np.array(x, dtype=float))
    np.testing.assert_allclose(head.to_head()(q), [float(v) for v in head.at(x)], rtol=1e-14)


def test_independent_scales_through_a_basis():
    head = ExactHead([[0, 0], [0, 1]], [1, 1], [0, 1], basis=[[1], [2**0.5]])
    expected = 1 / (1 + np.exp(-(2**0.5) * 0.7))
    np.testing.assert_allclose(head.to_head()(np.array([0.7])), expected, rtol=1e-14)


def test_weights_beyond_the_range_of_floats_reach_the_float_head():
    head = ExactHead([[0], [1]], [10**400, 10**401], [0, 1])
    np.testing.assert_allclose(head.to_head()(np.array([0.0])), 10 / 11, rtol=1e-14)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (([[0], [1]], [1, -1], [0, 1]), "weights\\[1\\] is -1"),
        (([[0], [1]], [1, 0], [0, 1]), "must be positive"),
        (([[0], [1]], [1, 0.5], [0, 1]), "weights holds the float 0.5"),
        (([[0], [1]], [1, 1], [0, 0.1]), "values holds the float"),
        (([[0.5], [1]], [1, 1], [0, 1]), "exponents holds the float"),
        (([["1/2"], [1]], [1, 1], [0, 1]), "from_keys takes rational keys"),
        (([], [], []), "exponents is empty"),
        (([[0], [1]], [1], [0, 1]), "2 exponents, 1 weights and 2 values"),
        (([[0], [1, 2]], [1, 1], [0, 1]), "different or zero length"),
        (([[], []], [1, 1], [0, 1]), "different or zero length"),
        (([[0], [1]], [1, 1], [0, [1, 2]]), "more than one shape"),
        (([[0], [1]], [1, 1], [[0], [1, 2]]), "more than one shape"),
        (([[0], [1]], [1, True], [0, 1]), "truth value"),
        (([[0], [1]], [1, None], [0, 1]), "holds None"),
        (([[0], [1]], [1, "1/0"], [0, 1]), "divides by zero"),
        (([[0], [1]], [1, "one"], [0, 1]), "'one'"),
        (([[0], [1]], "12", [0, 1]), "weights must be a list"),
        (([0, [1]], [1, 1], [0, 1]), "mixes numbers and rows"),
    ],
)
def test_bad_input_is_named(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        ExactHead(*arguments)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_exact_floats_must_be_finite(value):
    with pytest.raises(ValueError, match="finite"):
        ExactHead([[0], [1]], [1, 1], [0, value], exact_floats=True)


@pytest.mark.parametrize("d", [0, -1, 1.5, True])
def test_sigmoid_sum_needs_a_positive_integer(d):
    with pytest.raises(ValueError, match="positive integer"):
        exact_sigmoid_sum(d)


def test_points_are_checked():
    with pytest.raises(ValueError, match="positive"):
        exact_sigmoid_sum(2)[0].at([1, 0])
    with pytest.raises(ValueError, match="2 positive"):
        exact_sigmoid_sum(2)[0].at([1])
