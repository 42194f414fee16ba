"""Lattice coordinates: keys come back, and the coordinates do not depend on how keys are written."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.fusion import from_keys, fuse

numbers = st.fractions(min_value=-3, max_value=3, max_denominator=6)


def points(dim):
    return st.lists(st.tuples(*[numbers] * dim), min_size=1, max_size=3)


@given(st.lists(points(2), min_size=1, max_size=3))
def test_keys_are_basis_times_exponents_up_to_a_shift_per_head(tables):
    heads = from_keys(
        [[list(k) for k in t] for t in tables], [[1] * len(t) for t in tables], [[0] * len(t) for t in tables]
    )
    for head, table in zip(heads, tables, strict=True):
        back = {
            tuple(
                sum(e * b for e, b in zip(key, column, strict=True))
                for column in zip(*head.basis, strict=True)
            )
            for key in head.exponents
        }
        assert back == {tuple(x - y for x, y in zip(k, table[0], strict=True)) for k in table}


def test_coordinates_are_the_coarsest():
    (one,) = from_keys([[["1/3", 0], ["5/3", "2/3"]]], [[1, 1]], [[0, 1]])
    assert sorted(one.exponents) in ([(-1,), (0,)], [(0,), (1,)])
    assert one.basis in (((Fraction(4, 3), Fraction(2, 3)),), ((Fraction(-4, 3), Fraction(-2, 3)),))


def test_decimal_text_and_floats():
    (exact,) = from_keys(["0", "0.1"], [1, 1], [0, 1])
    (floats,) = from_keys([0.0, 0.1], [1, 1], [0, 1], exact_floats=True)
    assert exact.exponents == floats.exponents == ((0,), (1,))
    assert exact.basis == ((Fraction(1, 10),),)
    assert floats.basis == ((Fraction(0.1),),)
    with pytest.raises(ValueError, match="keys holds the float"):
        from_keys([0.0, 0.1], [1, 1], [0, 1])


def test_float_head_agrees_with_the_keys():
    keys = [["1/2", "-1/3"], ["3/4", "5/6"], [0, "1/6"]]
    (head,) = from_keys([keys], [[1, 2, 3]], [[1, 0, -1]])
    table = np.array([[float(Fraction(x)) for x in key] for key in keys])
    q = np.array([0.3, -1.1])
    mass = np.array([1, 2, 3]) * np.exp(table @ q)
    np.testing.assert_allclose(head.to_head()(q), mass @ np.array([1, 0, -1]) / mass.sum(), rtol=1e-13)


def test_constant_heads_have_a_lattice_too():
    heads = from_keys([[[1, 2]], [[3, 4]]], [[1], [5]], [[2], ["1/2"]])
    result = fuse(heads)
    assert result.lower == result.upper == 1
    assert result.head.values == (Fraction(5, 2),)


@pytest.mark.parametrize(
    ("keys", "weights", "values", "sentence"),
    [
        ([[[0], [1, 2]]], [[1, 1]], [[0, 1]], "one dimension"),
        ([[[0], [1]], [[0, 0], [1, 1]]], [[1, 1]] * 2, [[0, 1]] * 2, "one dimension"),
        ([[[0], [1]]], [[1, 1]] * 2, [[0, 1]], "keys for 1 heads, weights for 2"),
        ([], [], [], "weights is empty"),
        ([[]], [[]], [[]], "empty"),
        ("01", [1, 1], [0, 1], "must be a list"),
    ],
)
def test_bad_input_is_named(keys, weights, values, sentence):
    with pytest.raises(ValueError, match=sentence):
        from_keys(keys, weights, values)
