"""The proved distance of float64 matrices from the exact softmax, against Arb."""

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.laws import PointAttention, ball_points
from attnlab.laws._finite import aggregate


def exact_rows(attention):
    """The softmax of the stored points in Arb, with an error far below float64."""
    q, k, b = attention.q, attention.k, attention.log_weights
    rows = []
    for x in q:
        logits = [
            attention.beta
            * sum((flint.arb(float(s)) * float(t) for s, t in zip(x, y, strict=True)), flint.arb(0))
            + float(c)
            for y, c in zip(k, b, strict=True)
        ]
        top = max(logits, key=lambda z: float(z.mid()))
        weights = [(z - top).exp() for z in logits]
        total = sum(weights, flint.arb(0))
        rows.append([w / total for w in weights])
    return rows


def distance(rows, matrix):
    """The largest l1 distance of two rows, rounded up."""
    gaps = [
        sum((abs(a - float(x)) for a, x in zip(row, line, strict=True)), flint.arb(0))
        for row, line in zip(rows, matrix, strict=True)
    ]
    return max(float(g.upper()) for g in gaps)


def instance(seed, beta, d, m=5, n=11):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(m, d)), rng.normal(size=(n, d))
    return PointAttention(*points, beta, rng.normal(size=n) * beta)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.floats(0, 1e6), st.integers(1, 6))
def test_bounds_contain_the_true_distance(seed, beta, d):
    attention = instance(seed, beta, d)
    labels = np.random.default_rng(seed).permutation(np.r_[np.arange(4), np.zeros(7, int)])
    square = aggregate(attention, np.arange(5), labels)
    with flint.ctx.workprec(300):
        rows = exact_rows(attention)
        softmax = distance(rows, attention.rows(slice(None)))
        clustered = [
            [sum((a for a, c in zip(row, labels, strict=True) if c == j), flint.arb(0)) for j in range(4)]
            for row in rows
        ]
        normalised = [
            [flint.arb(float(x)) / sum(map(flint.arb, map(float, line)), flint.arb(0)) for x in line]
            for line in square
        ]
        gap = max(
            float(sum((abs(a - x) for a, x in zip(row, line, strict=True)), flint.arb(0)).upper())
            for row, line in zip(clustered, normalised, strict=True)
        )
    assert gap <= attention.aggregate_error
    assert softmax <= attention.aggregate_error


@pytest.mark.parametrize("beta", [1.0, 1e3, 1e6])
def test_logit_error_contains_the_effect_of_the_logits_alone(beta):
    """Exact softmax of the computed logits against exact softmax of the exact ones; and not loose."""
    attention = instance(0, beta, 3)
    z = attention.logits(slice(None))
    with flint.ctx.workprec(300):
        weights = [[flint.arb(float(x)).exp() for x in row] for row in z]
        computed = [[w / sum(row, flint.arb(0)) for w in row] for row in weights]
        rows = exact_rows(attention)
        gap = max(
            float(sum((abs(a - c) for a, c in zip(r, s, strict=True)), flint.arb(0)).upper())
            for r, s in zip(rows, computed, strict=True)
        )
    assert gap <= attention.logit_error <= 1e-14 * max(beta, 1) * 30


def test_bounds_are_small_where_they_are_used():
    assert ball_points(1, 4096.0).aggregate_error < 1e-11
    assert ball_points(2, 2048.0).aggregate_error < 1e-11


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"q": np.full((4, 2), np.nan)}, "q has NaN"),
        ({"k": np.ones((3, 1))}, "shapes"),
        ({"log_weights": np.zeros(2)}, "shapes"),
        ({"log_weights": np.full(3, -np.inf)}, "log_weights has NaN or infinite"),
        ({"beta": np.inf}, "beta"),
        ({"beta": "hot"}, "beta"),
        ({"q": np.ones((0, 2))}, "shapes"),
        ({"q": np.full((4, 2), 1e200), "k": np.full((3, 2), 1e200)}, "overflow"),
        ({"q": [["a"]]}, "real numbers"),
    ],
)
def test_bad_points(change, word):
    arguments = {"q": np.ones((4, 2)), "k": np.ones((3, 2)), "beta": 1.0, "log_weights": np.zeros(3)}
    with pytest.raises(ValueError, match=word):
        PointAttention(**(arguments | change))
