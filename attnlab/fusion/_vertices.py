"""Integer directions that expose the vertices of a Minkowski sum, one per vertex.

A vertex of a sum of polytopes is a choice of one vertex in each whose normal cones meet in an open set.
The polytopes are added one at a time; for every vertex of the partial sum and every vertex of the
next polytope a small linear program looks for a direction in both cones. Its solution is rounded to
integers and tested exactly. A cone too thin to be found costs a vertex, never correctness. In the plane
everything is exact: cones are the gaps between the outer normals of all edges, sorted by angle.
"""

import time
from collections.abc import Sequence
from fractions import Fraction
from functools import cmp_to_key
from math import gcd

import numpy as np
from scipy.optimize import linprog

Point = tuple[int, ...]
THIN = 1e-10  # a cone with a smaller inscribed ball (relative to unit normals) is taken as empty


def exposing_directions(supports: Sequence[Sequence[Point]], deadline: float) -> list[Point]:
    """Directions with different tuples of unique maximisers, as many as were found.

    Arguments:
        supports: the exponents of each polynomial.
        deadline: ``time.monotonic()`` after which the search returns what two opposite directions give.
    """
    dim = len(supports[0][0])
    moving = [list(s) for s in supports if len(s) > 1]
    if not moving:
        return [(1,) * dim]
    if dim == 1:
        return [(1,), (-1,)]
    if dim == 2:
        return _between_normals(moving)
    corners = [_vertices(s, deadline) for s in moving]
    start: Point = tuple(3**i for i in range(dim))
    cells: list[tuple[np.ndarray, Point]] = [(np.zeros((0, dim), dtype=object), start)]
    for polytope in sorted(corners, key=len):
        points = np.array(polytope, dtype=object)
        grown = []
        for rows, u in cells:
            if time.monotonic() > deadline:
                return [u for _, u in cells]
            for i in range(len(points)):
                more = np.concatenate([rows, points[i] - np.delete(points, i, axis=0)])
                inside = u if _strict(more, u) else _reflected(more, points, i, u) or _interior(more)
                if inside is not None:
                    grown.append((more, inside))
        cells = grown
    return [u for _, u in cells]


def _between_normals(supports: Sequence[Sequence[Point]]) -> list[Point]:
    """In the plane: one direction between any two neighbouring outer normals of edges."""
    normals: set[Point] = set()
    for support in supports:
        hull = _hull(sorted(set(support)))
        for a, b in zip(hull, [*hull[1:], hull[0]], strict=True):
            x, y = b[1] - a[1], a[0] - b[0]
            normals.add((x // gcd(x, y), y // gcd(x, y)))
    turning = sorted(normals, key=cmp_to_key(_by_angle))
    between = []
    for a, b in zip(turning, [*turning[1:], turning[0]], strict=True):
        quarter = -a[1], a[0]
        between.append((a[0] + b[0], a[1] + b[1]) if _cross(a, b) > 0 else quarter)
    return between


def _hull(points: Sequence[Point]) -> list[Point]:
    """Corners of the convex hull of sorted points in the plane, counter-clockwise (monotone chain)."""
    halves = []
    for sequence in (points, points[::-1]):
        half: list[Point] = []
        for p in sequence:
            while len(half) > 1 and _cross(_minus(half[-1], half[-2]), _minus(p, half[-2])) <= 0:
                half.pop()
            half.append(p)
        halves += half[:-1]
    return halves


def _by_angle(a: Point, b: Point) -> int:
    """Order by angle in [0, 2 pi)."""
    upper = [p[1] > 0 or (p[1] == 0 and p[0] > 0) for p in (a, b)]
    if upper[0] != upper[1]:
        return -1 if upper[0] else 1
    return -1 if _cross(a, b) > 0 else int(_cross(a, b) < 0)


def _cross(a: Point, b: Point) -> int:
    return a[0] * b[1] - a[1] * b[0]


def _minus(a: Point, b: Point) -> Point:
    return a[0] - b[0], a[1] - b[1]


def _vertices(support: Sequence[Point], deadline: float) -> list[Point]:
    """The vertices of the convex hull of a support."""
    points = np.array(support, dtype=object)
    if len(points) <= 2:
        return list(support)
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(64 * points.shape[1], points.shape[1])) @ points.astype(float).T
    found = set(scores.argmax(axis=1).tolist())  # cheap guesses first; the test below is what counts
    corners = []
    hull = sorted(found)
    for i in [*hull, *(j for j in range(len(points)) if j not in found)]:
        if time.monotonic() > deadline:
            break
        others = hull if i not in found else [j for j in range(len(points)) if j != i]
        if i not in found and _interior(points[i] - points[others]) is None:
            continue
        if _interior(points[i] - np.delete(points, i, axis=0)) is not None:
            corners.append(support[i])
    return corners


def _reflected(rows: np.ndarray, points: np.ndarray, i: int, u: Point) -> Point | None:
    """The mirror image of u across the edge from its own vertex to vertex i, if that is inside already.

    Spares the linear program where edges are orthogonal, as in a cube.
    """
    edge = points[i] - points[(points @ np.array(u, dtype=object)).argmax()]
    image = (edge @ edge) * np.array(u, dtype=object) - 2 * (edge @ np.array(u, dtype=object)) * edge
    mirrored: Point = tuple(int(x) // (gcd(*image.tolist()) or 1) for x in image)
    return mirrored if _strict(rows, mirrored) else None


def _interior(rows: np.ndarray) -> Point | None:
    """An integer u with rows @ u > 0 (checked exactly), or None if none was found."""
    if not len(rows):
        return (1,) * rows.shape[1]
    unit = _normalised(rows)
    dim = unit.shape[1]
    program = linprog(
        [0.0] * dim + [-1.0],
        A_ub=np.hstack([-unit, np.ones((len(unit), 1))]),
        b_ub=np.zeros(len(unit)),
        bounds=[(-1, 1)] * dim + [(0, 1)],
        method="highs",
    )
    if program.x is None or program.x[-1] < THIN:
        return None
    for digits in range(1, 15):
        u = tuple(round(x * 10**digits) for x in program.x[:-1])
        if _strict(rows, u):
            return u
    return None


def _strict(rows: np.ndarray, u: Point) -> bool:
    return bool((rows @ np.array(u, dtype=object) > 0).all())


def _normalised(rows: np.ndarray) -> np.ndarray:
    """Rows divided by their largest entry, in floats (exact ratios of integers of any size)."""
    table = []
    for row in rows.tolist():
        top = max(map(abs, row)) or 1
        table.append([float(Fraction(x, top)) for x in row])
    unit = np.array(table)
    return unit / np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-300)
