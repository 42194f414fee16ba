"""Window search: it finds known minima from nothing, exactly, and says which windows are too small."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.certify._fusion import add, value_scale
from attnlab.fusion import ExactHead, fuse
from attnlab.fusion._parts import split
from attnlab.fusion._upper import admissible
from attnlab.fusion._window import box, sparsest, usable_keys


def steps(*sizes, values=None):
    return [
        ExactHead([[0], [a]], [1, 1], [0, c]) for a, c in zip(sizes, values or [1] * len(sizes), strict=True)
    ]


def along(*directions):
    return [ExactHead([[0, 0], list(u)], [1, 1], [0, 1]) for u in directions]


def reduced(heads):
    data = [h.data() for h in heads]
    (part,) = split(data, value_scale(data))
    return add([b.ratio for b in part.reduced.blocks])


@pytest.mark.parametrize(
    ("heads", "window", "atoms"),
    [
        (steps(1, 2), 6, 4),
        (steps(1, 2, 3), 8, 7),
        (steps(1, 2, 3), 12, 7),
        (steps(1, 3, 4, 5), 14, 12),
        (steps(1, 2, 3, 6), 12, 12),
        (steps(1, 2, 3, 5, values=(1, -1, -3, 1)), 12, 8),
        (along((1, 0), (0, 1), (1, 1)), 3, 7),
        (along((1, 0), (0, 1), (1, 1), (1, -1)), 4, 12),
    ],
)
def test_finds_known_minima(heads, window, atoms):
    ratio = reduced(heads)
    keys = list(box([window] * len(ratio.denominator.degrees())))
    found = sparsest(ratio, keys, 1, 99, time.monotonic() + 30)
    assert found is not None
    assert admissible(found)
    assert len(found.denominator) == atoms
    assert found.numerators[0] * ratio.denominator == found.denominator * ratio.numerators[0]
    assert sparsest(ratio, keys, 1, atoms, time.monotonic() + 1) is None


@pytest.mark.parametrize("window", [6, range(7), [[i] for i in range(-3, 4)], [[i] for i in range(10, 17)]])
def test_windows_may_lie_anywhere(window):
    result = fuse(steps(1, 2, 3), window=window)
    assert result.window == 7
    assert result.lower == result.upper == 7


def test_a_window_with_holes():
    """(1, 1): the keys 0, 1 suffice; with step 2 between the keys nothing fits."""
    assert fuse(steps(1, 1), window=[[0], [1], [5]]).upper == 2
    with pytest.raises(ValueError, match="window of 2 keys is too small"):
        fuse(steps(1, 1), window=[[0], [2]])


@pytest.mark.parametrize(
    ("heads", "window", "least"),
    [
        (steps(1, 2, 3), 5, 6),
        (steps(1, 1), 0, 1),
        (along((1, 0), (0, 1), (1, 1)), 1, 2),
        # (x^3 + 1 - x + x^2) / (1 + x^3): the denominator as it stands lacks two keys.
        ([ExactHead([[0], [3]], [1, 1], [0, 1]), ExactHead([[0], [1]], [1, 1], [1, 0])], 3, 4),
    ],
)
def test_too_small_windows_name_the_least_one(heads, window, least):
    with pytest.raises(
        ValueError, match=f"window={window} is too small.*least usable integer window is {least}\\."
    ):
        fuse(heads, window=window)
    usable_keys(least, reduced(heads), 99)


@pytest.mark.parametrize(
    ("window", "sentence"),
    [
        (-1, "at least 0"),
        (1.5, "integer or a table"),
        ("9", "integer or a table"),
        ([[0.5]], "float"),
        ([["1/2"]], "integer keys with 1"),
        ([[0, 1]], "integer keys with 1"),
        ([], "empty"),
        (10**9, "at most 4,000"),
    ],
)
def test_bad_windows_are_named(window, sentence):
    with pytest.raises(ValueError, match=sentence):
        fuse(steps(1), window=window)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_integer_programming_never_beats_a_certified_lower_end(seed):
    """The two ends come from independent algorithms, so each is a test of the other."""
    rng = np.random.default_rng(seed)
    dim = int(rng.integers(1, 3))
    heads = [
        ExactHead(rng.integers(0, 4, (3, dim)), rng.integers(1, 3, 3), rng.integers(-1, 2, 3))
        for _ in range(2)
    ]
    result = fuse(heads, time_limit=0.5)
    data = [h.data() for h in heads]
    for part in split(data, value_scale(data)) if result.lower > 1 else []:
        ratio = add([b.ratio for b in part.reduced.blocks])
        if len(part.heads) == len(heads):  # otherwise the lower end is a product over parts
            keys = list(box([int(x) + 1 for x in ratio.denominator.degrees()]))
            assert sparsest(ratio, keys, 1, result.lower, time.monotonic() + 2) is None


def test_time_limit_returns_what_there_is():
    """Eight heads on a line: far beyond the searches, so the bracket stays open, and soon."""
    start = time.monotonic()
    result = fuse(steps(1, 3, 4, 5, 7, 9, 11, 13), time_limit=1)
    assert not result.closed
    assert result.lower >= 4  # from the valuations 0 and 2 alone; an exhaustive search gives more
    assert result.certificate.verify().holds
    assert time.monotonic() - start < 60  # generous: only a hang fails
