"""The robust bound: exact values for sums of sigmoids, sharpness, and consistency with fits."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnlab as al
from attnlab.fusion import ExactHead, exact_sigmoid_sum, fuse, robust_lower_bound


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 6])
def test_sums_of_sigmoids(d):
    heads = exact_sigmoid_sum(d)
    for eps in (0, "1/1000", 0.25, Fraction(499, 1000), math.nextafter(0.5, 0)):
        assert robust_lower_bound(heads, eps) == 2**d
    assert robust_lower_bound(heads, math.nextafter(d / 2, d)) == 1
    assert robust_lower_bound(heads, 0.5) < 2**d


def test_half_is_sharp():
    """1/2 + sigma(q1 + q2) has two atoms and stays within 1/2 of W_2 everywhere."""
    head = al.Head([[0.0, 0.0], [1.0, 1.0]], [0.5, 1.5])
    w = al.sigmoid_sum(2)
    grid = np.linspace(-30, 30, 61)
    worst = max(abs(float(head([x, y]) - w([x, y]))) for x in grid[::3] for y in grid[::3])
    assert worst <= 0.5 + 1e-12
    assert robust_lower_bound(exact_sigmoid_sum(2), 0.5) <= 2


def test_float_heads_and_exact_heads_agree():
    for eps in (0.1, 0.5, 0.8, 1.2):
        assert robust_lower_bound(al.sigmoid_sum(3), eps) == robust_lower_bound(exact_sigmoid_sum(3), eps)
    single = al.Head([[0.0], [1.0]], [0.0, 1.0])
    assert robust_lower_bound([single], 0.4) == 2
    absent = al.Head([[0.0], [1.0], [5.0]], [0.0, 1.0, 9.0], [0.0, 0.0, -np.inf])
    assert robust_lower_bound([absent], 0.6) == 1


def test_vector_values_and_norms():
    heads = [ExactHead([[0, 0], u], [1, 1], [[0, 0], v]) for u, v in (([1, 0], [1, 0]), ([0, 1], [0, 1]))]
    # Limits are the corners of the unit square; neighbours are at distance 1 in every norm.
    for norm in (1, 2, math.inf):
        assert robust_lower_bound(heads, 0.49, norm=norm) == 4
    # Beyond 1/2 all corners join; opposite ones are 2, sqrt 2 and 1 apart.
    assert [robust_lower_bound(heads, 0.6, norm=norm) for norm in (1, 2, math.inf)] == [2, 2, 1]
    assert [robust_lower_bound(heads, 0.9, norm=norm) for norm in (1, 2, math.inf)] == [2, 1, 1]


def test_keys_are_compared_in_space_not_in_the_lattice():
    """Keys 0, 1 and 0, sqrt 2 on the line: two limits, although the lattice is two-dimensional."""
    heads = [
        ExactHead([[0, 0], [1, 0]], [1, 1], [0, 1], [[1], [2**0.5]]),
        ExactHead([[0, 0], [0, 1]], [1, 1], [0, 1], [[1], [2**0.5]]),
    ]
    assert robust_lower_bound(heads, 0.1) == 2
    assert fuse(heads).lower == 4


def test_commensurate_sigmoids_look_like_one_from_afar():
    heads = [ExactHead([[0], [a]], [1, 1], [0, 1]) for a in (1, 2, 4)]
    assert robust_lower_bound(heads, 0.1) == 2
    assert fuse(heads).lower == 8


@settings(max_examples=12)
@given(st.integers(0, 2**32 - 1))
def test_never_above_the_exact_minimum_and_falling_in_eps(seed):
    rng = np.random.default_rng(seed)
    heads = [
        ExactHead(rng.integers(-2, 3, (3, 2)), rng.integers(1, 4, 3), rng.integers(-2, 3, 3))
        for _ in range(2)
    ]
    counts = [robust_lower_bound(heads, eps) for eps in (0, 0.3, 0.5, 1, 2, 8)]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 1
    assert counts[0] <= fuse(heads, time_limit=0.3).upper


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"eps": -0.1}, "at least 0"),
        ({"eps": float("nan")}, "finite"),
        ({"eps": "x"}, "eps holds 'x'"),
        ({"eps": 0.1, "norm": 3}, "norm must be"),
        ({"eps": 0.1, "heads": []}, "empty"),
    ],
)
def test_bad_input_is_named(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        robust_lower_bound(**{"heads": exact_sigmoid_sum(2), **arguments})


def test_too_many_cones_are_refused(monkeypatch):
    monkeypatch.setattr("attnlab.fusion._robust.LARGEST", 8)
    with pytest.raises(ValueError, match="16 cones"):
        robust_lower_bound(exact_sigmoid_sum(4), 0.1)
