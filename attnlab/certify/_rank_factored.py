"""What the rank checkers need of a factored subject, in one pass over blocks of its rows.

Both functions bound a product of computed rows without holding radii entry by entry: the l1 distance of a row
of A from the true one, and one Higham bound for the sum over a row of |fl(U W) - U W| <= gamma_k |U| |W|.
"""

from collections.abc import Mapping

import flint
import numpy as np

from ._balls import INFLATE, TINY, UNIT, ArbBalls, Balls, FloatBalls, gamma
from ._errors import InvalidWitness
from ._factored import Factored

TILE = 2**19  # entries of U W held at a time


def streamed_error(a: Factored, u: np.ndarray, w: np.ndarray, arb: bool) -> float:
    """An upper bound on max_i ||A_i - U_i W||_1."""
    n, rank = w.shape[1], len(w)
    if arb:
        exact_w = ArbBalls.exact(w)
        arb_work = lambda block: (a.balls(block, True) - ArbBalls.exact(u[block]) @ exact_w).norm()
        return max(a.map(arb_work, arb))
    mass = np.abs(w).sum(1)

    def work(block: slice) -> float:
        rows, left = a.rows(block), u[block]
        sums, step = np.zeros(len(left)), max(TILE // len(left), 1)
        for j in range(0, n, step):
            error = rows.mid[:, j : j + step] - left @ w[:, j : j + step]
            sums += np.abs(error, out=error).sum(1)
        radius = (gamma(rank + 2) * (np.abs(left) @ mass) + rows.distance() + n * TINY) * INFLATE
        bound = (sums + radius) * (1 + 2 * gamma(n + 4) + 8 * UNIT)
        return float(bound.max()) if np.isfinite(bound).all() else np.inf

    return max(a.map(work))


def streamed_image(a: Factored, r: np.ndarray, arb: bool) -> Balls:
    """A R for R (N, s) as balls (m, s)."""
    n = len(r)
    if arb:
        exact_r = ArbBalls.exact(r)
        parts = a.map(lambda block: (a.balls(block, True) @ exact_r).mat.entries(), arb)
        return ArbBalls(flint.arb_mat(a.shape[0], r.shape[1], [x for part in parts for x in part]))
    largest = np.abs(r).max(0)

    def work(block: slice) -> tuple[np.ndarray, np.ndarray]:
        rows = a.rows(block)
        # sum_j |a_ij| <= 2 covers the computed sums, which are 1 up to rounding.
        return rows.mid @ r, (2 * gamma(n + 2) + rows.distance()) * INFLATE

    parts = a.map(work)
    mid, spread = (np.concatenate(side) for side in zip(*parts, strict=True))
    return FloatBalls(mid, spread[:, None] * largest * INFLATE + n * TINY)


def lower_subject(a: Factored, witness: Mapping[str, np.ndarray], arb: bool) -> Balls:
    """The matrix a lower witness speaks about: A[rows] P, with every row and no clusters by default."""
    m, n = a.shape
    rows = _indices(witness, "rows", m) if "rows" in witness else np.arange(m)
    labels = _indices(witness, "labels", n, (n,)) if "labels" in witness else np.arange(n)
    if len(np.unique(labels)) != labels.max() + 1:
        raise InvalidWitness("labels must use every number from 0 to their largest.")
    return a.aggregate(rows, labels, arb)


def _indices(
    witness: Mapping[str, np.ndarray], name: str, most: int, shape: tuple[int, ...] | None = None
) -> np.ndarray:
    array = witness[name]
    if array.dtype.kind not in "iu" or array.ndim != 1 or not array.size or shape not in (None, array.shape):
        raise InvalidWitness(f"{name} must be a list of integers, not {array.dtype} of shape {array.shape}.")
    if array.min() < 0 or array.max() >= most:
        raise InvalidWitness(f"{name} must lie in 0 .. {most - 1}.")
    return array.astype(np.int64)
