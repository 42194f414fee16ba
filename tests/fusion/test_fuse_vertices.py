"""Vertices of Minkowski sums from their summands, and exact decisions about positive vectors."""

import time
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.certify._fusion_lower import count_vertices
from attnlab.fusion import ExactHead, fuse
from attnlab.fusion._positive import positive_combination
from attnlab.fusion._vertices import exposing_directions


def count(supports):
    found = exposing_directions(supports, time.monotonic() + 60)
    return count_vertices([dict.fromkeys(s, 1) for s in supports], [list(u) for u in found])


def generic_zonotope(n, dim):
    """Number of vertices of a zonotope of n generators in general position."""
    return 2 * sum(comb(n - 1, i) for i in range(dim))


@pytest.mark.parametrize(("n", "dim"), [(3, 2), (7, 2), (12, 2), (5, 3), (8, 3), (12, 3)])
def test_zonotopes_in_general_position(n, dim):
    moment = [tuple((i + 1) ** k for k in range(dim)) for i in range(n)]  # any dim of them independent
    assert count([[(0,) * dim, u] for u in moment]) == generic_zonotope(n, dim)


def test_twelve_generators_in_space_through_the_whole_chain():
    moment = [(1, i, i * i) for i in range(-3, 4)]
    result = fuse([ExactHead([[0, 0, 0], list(u)], [1, 1], [0, 1]) for u in moment], time_limit=4)
    assert result.lower >= generic_zonotope(7, 3)
    assert result.certificate.verify().holds


def test_cube_product_of_simplices_and_polygons():
    cube = [[(0,) * 6, tuple(int(i == j) for i in range(6))] for j in range(6)]
    assert count(cube) == 64
    assert count([[(0, 0), (1, 0), (0, 1)], [(0, 0), (1, 0), (0, 1)]]) == 3
    assert count([[(0, 0), (1, 0), (0, 1)], [(0, 0), (-1, 0), (0, -1)]]) == 6
    polygon = [(i, i * i) for i in range(-5, 6)]
    assert count([polygon, [(0, 0), (1, 1)]]) == 12  # edge slopes are -9, -7, .. 9, so 1 is one of them
    assert count([[(0, 0)], [(5, 5)]]) == 1


def test_points_inside_are_not_vertices(rng):
    square = [(0, 0), (8, 0), (0, 8), (8, 8)]
    inside = [tuple(map(int, p)) for p in rng.integers(1, 8, (20, 2))]
    assert count([[*square, *inside, (4, 0)]]) == 4


def test_large_coordinates_stay_exact():
    big = 10**25
    assert count([[(0, 0), (big, 1)], [(0, 0), (big, 2)], [(0, 0), (1, big)]]) == 6


@given(
    st.lists(
        st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=1, max_size=6, unique=True),
        min_size=1,
        max_size=3,
    )
)
def test_agrees_with_the_hull_of_the_expanded_sum(supports):
    total = {(0, 0)}
    for s in supports:
        total = {(a + c, b + d) for a, b in total for c, d in s}
    assert count(supports) == _hull_size(sorted(total))


@given(
    st.integers(1, 4).flatmap(
        lambda k: st.lists(st.lists(st.integers(-6, 6), min_size=k, max_size=k), min_size=k, max_size=8)
    )
)
def test_exactly_one_side_of_gordans_theorem_holds(rows):
    table = np.array(rows)
    if np.linalg.matrix_rank(table) < table.shape[1]:
        return
    basis = table.T.tolist()
    c, y = positive_combination(basis, len(rows))
    assert (c is None) != (y is None)
    if c is not None:
        assert (table @ np.array(c) > 0).all()
    else:
        assert min(y) >= 0
        assert any(y)
        assert (np.array(y) @ table == 0).all()


def test_gordan_with_an_empty_basis():
    assert positive_combination([], 3) == (None, [1, 0, 0])


def _hull_size(points):
    """Vertices of a planar hull by a monotone chain."""
    if len(points) < 3:
        return len(points)

    def chain(sequence):
        hull = []
        for p in sequence:
            while len(hull) > 1 and _turn(hull[-2], hull[-1], p) <= 0:
                hull.pop()
            hull.append(p)
        return hull[:-1]

    return len(chain(points) + chain(points[::-1]))


def _turn(a, b, c):
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
