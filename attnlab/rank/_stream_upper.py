"""Upper ends of a streamed matrix: factors found by an l1 descent over all rows, and fewer and fewer of them.

The start is the truncated SVD of rows reweighted towards those that err most. A step majorises every |e|
by a parabola (iteratively reweighted least squares with one curvature per row), so it costs one pass over
the matrix and two small inverses, and 10 to 40 steps lower the largest row error of the best reweighted SVD
by about a third. Once it is within eps, the weakest component is dropped and the descent continues.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from .._lanes import fetch
from ._stream import (
    Iterate,
    Stream,
    at_rest,
    gram,
    move_right,
    row_errors,
    some_rows,
    sweep,
    turned,
    weighted_gram,
)
from ._stream_basis import Basis

SAMPLE = 512  # rows that locate the first rank
EXPECTED = 1.25, 25  # mean row error of a truncated SVD which the descent brings to 1, in so many steps
REWEIGHTINGS, POWER = 3, 0.7
PAD = 64  # larger ranks are padded to multiples of this, so that nearby ones share a compilation
LEFT_STEP, RIGHT_STEP, MOMENTUM = 1.0, 0.3, (0.7, 0.9)  # momentum of short and of long descents
LONG = 100  # steps
HEAT = (
    0.1,
    (0.01, 0.5),
)  # softness of the maximum over rows, relative to it: at the start; least, and times steps
WIDTH = 1.0, (0.03, 5.0)  # rounding of |e|, relative to its mean over the row: the same
BACK = 1.15  # an error this much above the best one sends the descent back to it
SLACK = 3e-4  # of eps, for the rounding of a float32 search
SETTLE = 6  # steps over which the rate of progress is measured
DROP, GROW = 0.05, 1.15  # first change of the rank after a success, and after none
COOLING_GAIN = 0.4  # of the error, from the start of a descent to its end
REHEAT = 0.4  # share of the steps that counts again after a change of rank


@dataclass(frozen=True, eq=False)
class Found:
    """Factors U (m, k), W (k, N), their largest row error as the search measured it, recent row errors, how
    far the descent had cooled, and the passes over the matrix since the last ones."""

    left: np.ndarray
    right: np.ndarray
    error: float
    errors: np.ndarray
    steps: int
    passes: int

    @property
    def rank(self) -> int:
        """k."""
        return len(self.right)


class Descent:
    """Factors of one padded width under a descent planned for ``length`` steps.

    ``errors`` are the row errors of the factors before the last step, ``best`` the least maximum so far.
    """

    def __init__(self, data: Stream, basis: Basis, rank: int, length: int):
        self.data, self.rank, self.length, self.passes = data, rank, length, 0
        self.width = PAD * -(-rank // PAD) if rank > PAD else max(1 << (rank - 1).bit_length(), 4)
        rows, best, start = np.ones(len(basis.image)), np.inf, None
        for _ in range(REWEIGHTINGS):
            now = self._iterate(*truncated(basis, rank, rows))
            errors = data.flat(row_errors(data, now.left, now.right))
            self.passes += 1
            if start is None or errors.max() < best:
                best, start = float(errors.max()), (now, errors)
            rows = rows * np.clip(errors / max(errors.mean(), 1e-300), 0.1, 10) ** POWER
            rows /= rows.mean()
        assert start is not None
        self._restart(*start)

    def restart(self, found: "Found") -> None:
        """Continue from these factors."""
        self.rank = found.rank
        self._restart(self._iterate(found.left, found.right), found.errors, found.steps)

    def step(self) -> None:
        """One pass: measures the present factors and moves them."""
        heat, width = (
            first * (max(least, times / self.length) / first) ** min(self.steps / self.length, 1.0)
            for first, (least, times) in (HEAT, WIDTH)
        )
        momentum = MOMENTUM[self.length >= LONG]
        number = self.data.shared
        metric = self._inverse(gram(self.now.right), 1e-7)
        peak = number(max(self.errors.max(), 1e-30))
        errors, moved, pull, curvature = sweep(
            self.data,
            self.now,
            peak,
            number(heat),
            number(width),
            metric,
            number(LEFT_STEP),
            number(momentum),
        )
        errors = self.data.flat(errors)
        self.passes += 1
        self.steps += 1
        self.history.append(float(errors.max()))
        if not errors.max() <= BACK * self.best[0]:
            self.now = turned(self.best[1], *2 * (self.data.shared(np.eye(self.width)),))
            return
        if errors.max() < self.best[0]:
            self.best = float(errors.max()), self.now
        self.errors = errors
        inverse = self._inverse(curvature, 1e-3)
        self.now = move_right(moved, pull, inverse, number(RIGHT_STEP), number(momentum))

    def found(self) -> "Found":
        """The best factors since the last change of rank."""
        left, right = self.data.flat(self.best[1].left), fetch(self.best[1].right)
        return Found(
            left[:, : self.rank], right[: self.rank], self.best[0], self.errors, self.steps, len(self.history)
        )

    def hopeless(self, target: float) -> bool:
        """Whether the rest of the descent will hardly reach the target: neither at the present rate, nor
        by what cooling usually brings."""
        if len(self.history) <= SETTLE:
            return False
        recent, left = min(self.history[-SETTLE:]), self.length - self.steps
        rate = (min(self.history[:-SETTLE]) - recent) / SETTLE
        gain = 1 + COOLING_GAIN * max(left / self.length, 0) ** 4
        return not (recent < target * gain or recent - rate * left < target) or left <= 0

    def shrink(self, rank: int) -> None:
        """Keep the ``rank`` strongest components of U W, as the rows that err most see them."""
        weights = np.exp((self.errors / self.errors.max() - 1) / 0.3)
        k = self.rank
        u_gram = fetch(weighted_gram(self.now.left, self.data.blocks(weights))).astype(np.float64)[:k, :k]
        w_gram = fetch(gram(self.now.right)).astype(np.float64)[:k, :k]
        root, back = _roots(w_gram)
        vectors = np.linalg.eigh(root @ u_gram @ root)[1][:, ::-1][:, :rank]
        left, right = np.zeros((self.width, self.width)), np.zeros((self.width, self.width))
        left[:k, :rank], right[:rank, :k] = root @ vectors, vectors.T @ back
        self.rank = rank
        now = turned(self.now, self.data.shared(left), self.data.shared(right))
        self._restart(now, self.errors, int(REHEAT * self.steps))

    def _restart(self, now: Iterate, errors: np.ndarray, steps: int = 0) -> None:
        self.now, self.errors, self.best = now, errors, (np.inf, now)
        self.steps, self.history = steps, []

    def _iterate(self, left: np.ndarray, right: np.ndarray) -> Iterate:
        pad = self.width - len(right)
        u = self.data.blocks(np.pad(left, ((0, 0), (0, pad))))
        return at_rest(u, self.data.shared(np.pad(right, ((0, pad), (0, 0)))))

    def _inverse(self, matrix, ridge: float):
        """Inverse on the active components of a (K, K) Gram matrix, on the host in float64."""
        k = self.rank
        inner = fetch(matrix).astype(np.float64)[:k, :k]
        full = np.zeros((self.width, self.width))
        full[:k, :k] = np.linalg.inv(inner + ridge * max(np.trace(inner) / k, 1e-300) * np.eye(k))
        return self.data.shared(full)


def truncated(basis: Basis, rank: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """U = A V, W = V' for the leading right singular vectors V of diag(sqrt rows) A."""
    weighted = basis.image * np.sqrt(rows)[:, None].astype(basis.image.dtype)
    vectors = np.linalg.eigh((weighted.T @ weighted).astype(np.float64))[1][:, ::-1][:, :rank]
    turn = vectors.astype(basis.image.dtype)
    return basis.image @ turn, (basis.directions @ turn).T


def _roots(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = np.linalg.eigh(matrix)
    values = np.maximum(values, 1e-14 * values[-1])
    return (vectors * np.sqrt(values)) @ vectors.T, (vectors / np.sqrt(values)) @ vectors.T


def first_rank(data: Stream, basis: Basis, eps: float) -> int:
    """The least rank at which a truncated SVD errs by eps in the mean row."""
    index = np.linspace(0, data.count - 1, min(SAMPLE, data.count)).astype(int)
    rows = some_rows(data, index)
    _, right = truncated(basis, basis.size, np.ones(len(basis.image)))
    left = rows @ right.T
    low, high = 0, basis.size
    while high - low > 1:
        middle = (low + high) // 2
        mean = np.abs(rows - left[:, :middle] @ right[:middle]).sum(1).mean()
        low, high = (low, middle) if mean <= eps else (middle, high)
    return high


def few_factors(
    data: Stream,
    basis: Basis,
    eps: float,
    budget: int,
    patience: int,
    report: Callable[[str], None],
) -> Iterator[Found]:
    """Factors within eps as the search measures it, of smaller and smaller rank.

    Arguments:
        budget: passes over the matrix, all together; more only as long as nothing was found.
        patience: about the most passes for one rank.
    """
    target, gain = eps * (1 - SLACK), 1 + (EXPECTED[0] - 1) * min(patience / EXPECTED[1], 1.5)
    rank = first_rank(data, basis, gain * eps)
    descent, found, spent = Descent(data, basis, rank, patience), None, 0
    drop = max(round(DROP * rank), 1)
    while found is None or spent + descent.passes < budget:
        descent.step()
        report(f"upper end: rank {descent.rank}, error {descent.history[-1]:.4g}")
        if descent.history[-1] <= target:
            found = descent.found()
            yield found
            if found.rank == 1:
                return
            quick = len(descent.history)
            drop = drop if quick > SETTLE else max(round(1.5 * drop), drop + 1) if drop > 1 else drop
            drop = max(drop // 2, 1) if quick > 2 * SETTLE else drop
            drop = min(drop, found.rank - 1)
            descent.shrink(found.rank - drop)
        elif descent.hopeless(target):
            if found is None:
                if descent.rank >= basis.size:
                    return
                spent += descent.passes
                rank = min(max(int(GROW * rank), rank + 1), basis.size)
                descent = Descent(data, basis, rank, patience)
            elif drop == 1:
                return
            else:
                drop = max(drop // 3, 1)
                descent.restart(found)
                descent.shrink(found.rank - drop)


def fixed_rank(data: Stream, basis: Basis, rank: int, steps: int) -> Found:
    """The best factors of this rank after so many steps."""
    descent = Descent(data, basis, rank, steps)
    for _ in range(steps):
        descent.step()
    return descent.found()
