"""The leading directions of a streamed matrix from a few of its rows, refined until no row is far off."""

from dataclasses import dataclass

import numpy as np

from ._factored import FactoredAttention
from ._stream import Stream, image, some_rows

FIRST, MOST = 256, 2048  # landmark rows to begin with and at most
NOISE = {4: 1e-4, 8: 1e-7}  # singular values below this share are rounding, by bytes of a float
CHUNK = 4096


@dataclass(frozen=True, eq=False)
class Basis:
    """A is near ``image @ directions.T``; ``left_over`` is the largest l1 distance of a row from it."""

    directions: np.ndarray
    image: np.ndarray
    left_over: float

    @property
    def size(self) -> int:
        """Number of directions."""
        return self.directions.shape[1]


def find_basis(
    data: Stream, attention: FactoredAttention, accuracy: float, most: int, rng: np.random.Generator
) -> Basis:
    """Orthonormal directions B (N, p) such that every row of A is within ``accuracy`` of A B B'.

    The span of landmark rows, farthest-first and random ones to begin with, then as many again drawn where
    the distance is largest. With ``most`` landmarks it returns what it has.
    """
    m = attention.shape[0]
    most = min(most, MOST, m)
    order = farthest_first(np.asarray(attention.q, np.float64), min(FIRST // 2, most))
    index = _with_random(order, min(FIRST, most), np.ones(m), rng)
    while True:
        directions = _row_space(some_rows(data, index))
        coordinates, errors = image(data, data.shared(directions))
        errors = data.flat(errors)
        if errors.max() <= accuracy or len(index) >= most:
            return Basis(directions, data.flat(coordinates), float(errors.max()))
        index = _with_random(index, min(2 * len(index), most), errors**2, rng)


def farthest_first(points: np.ndarray, count: int) -> np.ndarray:
    """Indices of a farthest-first traversal: each next point is the farthest from those before."""
    order = [int((points**2).sum(1).argmax())]
    distance = ((points - points[order[0]]) ** 2).sum(1)
    while len(order) < count:
        order.append(int(distance.argmax()))
        distance = np.minimum(distance, ((points - points[order[-1]]) ** 2).sum(1))
    return np.unique(order)


def _with_random(index: np.ndarray, count: int, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """``index`` filled up to ``count`` different rows, drawn with the given weights."""
    weights = weights + 1e-9 * weights.max()
    weights[index] = 0
    more = min(count - len(index), int((weights > 0).sum()))
    if more <= 0:
        return index
    return np.concatenate([index, rng.choice(len(weights), more, replace=False, p=weights / weights.sum())])


def _row_space(rows: np.ndarray) -> np.ndarray:
    """(N, p) orthonormal basis of the rows, without what is below the noise of their precision."""
    n = rows.shape[1]
    gram = np.zeros((len(rows), len(rows)))
    for j in range(0, n, CHUNK):
        part = rows[:, j : j + CHUNK].astype(np.float64)
        gram += part @ part.T
    squares, vectors = np.linalg.eigh(gram)
    kept = squares > (NOISE[rows.dtype.itemsize] ** 2) * squares[-1]
    turn = (vectors[:, kept] / np.sqrt(squares[kept])).astype(rows.dtype)
    return (rows.T @ turn)[:, ::-1]
