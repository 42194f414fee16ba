"""Attention given by its factors, enclosed in blocks of rows: the n x n matrix is never held.

Subject arrays: ``q`` (m, d), ``k`` (N, d), ``beta`` (), ``log_weights`` (N,) (``-inf`` removes a key) and,
if some pairs are masked, ``mask``: the text ``causal`` (query i sees keys j <= i + N - m) or bits packed
along the rows by ``numpy.packbits``, shape (m, ceil(N / 8)). All numbers are taken as exact; the matrix
meant is the true row softmax of beta q k' + log_weights.

*Rounding*, with u = 2^-53 and gamma_n = n u / (1 - n u). The computed logit beta q.k + b is off by at
most gamma_{d+3} h_i, h_i = |beta| sum_c |q_ic| max_j |k_jc| + max_j |b_j|; shifting it by the largest
logit of its row, which the softmax does not see, adds u times the shifted logit, at most 2 h_i. So exp
is off by a relative r_i <= expm1(gamma_{d+3} h_i + 4 u h_i) + 2 EXP_ULPS u, the sum of a row by as much
and gamma_N more, and a probability by a relative e_i of at most 2 r_i + gamma_{N+4} to first order; a
factor 1.5 covers the rest as long as e_i < 1/4. Errors from underflow stay below TINY an entry.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np

from ._balls import EXP_ULPS, INFLATE, TINY, UNIT, ArbBalls, Balls, FloatBalls, gamma
from ._errors import InvalidWitness

NAMES = {"q", "k", "beta", "log_weights"}
BLOCK = 2**22  # entries of the matrix held at a time by each worker
ARB_BLOCK = 2**14
WORKERS = 2  # blocks in flight: one thread's exponentials beside the other's products
LARGEST_FORMED = 2**24  # entries of a matrix that a checker may hold in full


def is_factored(subject: Mapping[str, np.ndarray]) -> bool:
    """Whether the subject is given by queries and keys."""
    return set(subject) - {"mask"} == NAMES


@dataclass(frozen=True, eq=False)
class Rows:
    """Computed probabilities of some rows: entry (i, j) is within relative[i] mid[i, j] + TINY of the
    true one."""

    mid: np.ndarray
    relative: np.ndarray

    def distance(self) -> np.ndarray:
        """(rows,) bound on the l1 distance from the true rows (whose sums are 1)."""
        n = self.mid.shape[1]
        return (self.relative * (1 + 2 * gamma(n + 2)) + n * TINY) * INFLATE


@dataclass(frozen=True, eq=False)
class Factored:
    """A validated factored subject."""

    q: np.ndarray
    k: np.ndarray
    beta: float
    log_weights: np.ndarray
    mask: np.ndarray | str | None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix meant."""
        return len(self.q), len(self.k)

    def blocks(self, arb: bool = False) -> Iterator[slice]:
        """Slices that cover all rows."""
        height = max((ARB_BLOCK if arb else BLOCK) // len(self.k), 1)
        return (slice(i, min(i + height, len(self.q))) for i in range(0, len(self.q), height))

    def map(self, work: Callable[[slice], Any], arb: bool = False) -> list[Any]:
        """``work`` on every block of rows, in order; ``WORKERS`` of them at a time."""
        if arb:  # python-flint's working precision belongs to the thread
            return [work(block) for block in self.blocks(arb)]

        def quiet(block: slice) -> Any:
            with np.errstate(all="ignore"):  # also a setting of the thread
                return work(block)

        with ThreadPoolExecutor(WORKERS) as pool:
            return list(pool.map(quiet, self.blocks()))

    def rows(self, select: np.ndarray | slice) -> Rows:
        """Some rows in float64."""
        q = self.q[select]
        z = (self.beta * q) @ self.k.T
        z += self.log_weights
        seen = self.seen(select)
        if seen is not None:
            np.copyto(z, -np.inf, where=~seen)
        top = z.max(1, keepdims=True)
        if (top == -np.inf).any():
            raise InvalidWitness("A row of the subject has every key masked or removed.")
        z -= top
        np.exp(z, out=z)
        z /= z.sum(1, keepdims=True)
        return Rows(z, self.relative(q))

    def rows_arb(self, select: np.ndarray | slice) -> list[list[flint.arb]]:
        """Some rows in Arb."""
        keys = [[flint.arb(float(x)) for x in key] for key in self.k]
        beta, seen = flint.arb(self.beta), self.seen(select)
        answer = []
        for i, query in enumerate(self.q[select]):
            point = [beta * float(x) for x in query]
            logits = [
                sum((x * y for x, y in zip(point, key, strict=True)), flint.arb(float(b)))
                if b != -np.inf and (seen is None or seen[i, j])
                else None
                for j, (key, b) in enumerate(zip(keys, self.log_weights, strict=True))
            ]
            known = [float(z.mid()) for z in logits if z is not None]
            if not known:
                raise InvalidWitness("A row of the subject has every key masked or removed.")
            raw = [flint.arb(0) if z is None else (z - max(known)).exp() for z in logits]
            total = sum(raw, flint.arb(0))
            answer.append([x / total for x in raw])
        return answer

    def balls(self, select: np.ndarray | slice, arb: bool) -> Balls:
        """Some rows as balls; for matrices small enough to be held."""
        if arb:
            rows = self.rows_arb(select)
            return ArbBalls(flint.arb_mat(len(rows), len(self.k), [x for row in rows for x in row]))
        rows = self.rows(select)
        return FloatBalls(rows.mid, (rows.mid * rows.relative[:, None]) * INFLATE + TINY)

    def whole(self, arb: bool) -> Balls:
        """The full matrix, for checkers that do not stream."""
        if len(self.q) * len(self.k) > LARGEST_FORMED:
            raise InvalidWitness(
                f"A {len(self.q)} x {len(self.k)} matrix is too large to be formed, as this kind needs."
            )
        return self.balls(slice(None), arb)

    def aggregate(self, rows: np.ndarray, labels: np.ndarray, arb: bool) -> Balls:
        """A[rows] P for the 0/1 map P of columns to clusters: ``labels`` (N,) holds 0, ..., clusters - 1.

        Dropping rows and adding up columns cannot raise any a_{k+1}, because ||E P||_1 <= ||E||_1.
        """
        count = int(labels.max()) + 1
        order = np.argsort(labels, kind="stable")
        starts = np.searchsorted(labels[order], np.arange(count))
        if len(rows) * count > LARGEST_FORMED:
            raise InvalidWitness(f"An aggregate of {len(rows)} x {count} is too large: use fewer clusters.")
        if arb:
            ends = np.append(starts[1:], len(order))
            parts = [
                sum((row[j] for j in order[a:b]), flint.arb(0))
                for row in self.rows_arb(rows)
                for a, b in zip(starts, ends, strict=True)
            ]
            return ArbBalls(flint.arb_mat(len(rows), count, parts))
        height = max(BLOCK // len(labels), 1)
        mid, relative = [], []
        for i in range(0, len(rows), height):
            part = self.rows(rows[i : i + height])
            mid.append(np.add.reduceat(part.mid[:, order], starts, axis=1))
            relative.append(part.relative)
        middle, spread = np.concatenate(mid), np.concatenate(relative) + gamma(len(labels))
        return FloatBalls(middle, middle * spread[:, None] * (1 + 1e-6) + len(labels) * TINY)

    def relative(self, q: np.ndarray) -> np.ndarray:
        """(rows,) bounds on the relative error of computed probabilities for these queries."""
        d, n = self.k.shape[1], len(self.k)
        finite = np.abs(self.log_weights[self.log_weights > -np.inf]).max(initial=0.0)
        with np.errstate(over="ignore"):
            largest = (abs(self.beta) * (np.abs(q) @ np.abs(self.k).max(0)) + finite) * INFLATE
        if not largest.max() < 1e12:
            raise InvalidWitness("The logits are too large for a float64 enclosure: scale q, k or beta.")
        raw = np.expm1((gamma(d + 3) + 4 * UNIT) * largest + d * TINY) * 1.01 + 2 * EXP_ULPS * UNIT
        relative = (2 * raw + gamma(n + 4)) * 1.5
        if not relative.max() < 0.25:
            raise InvalidWitness(
                "The logits are too large for a float64 enclosure; scale q, k or beta, or use the Arb path."
            )
        return relative

    def seen(self, select: np.ndarray | slice) -> np.ndarray | None:
        """(rows, N) booleans, or None where nothing is masked."""
        if self.mask is None:
            return None
        m, n = self.shape
        if isinstance(self.mask, str):
            return np.arange(n) <= np.arange(m)[select, None] + (n - m)
        return np.unpackbits(self.mask[select], axis=1, count=n).astype(bool)


def read_factored(subject: Mapping[str, np.ndarray]) -> Factored:
    """Validate; raises ``InvalidWitness`` with the first fault found."""
    q, k, beta, weights = (_real(subject, name) for name in ("q", "k", "beta", "log_weights"))
    if q.ndim != 2 or k.ndim != 2 or q.shape[1] != k.shape[1] or 0 in q.shape + k.shape:
        raise InvalidWitness(
            f"q and k must be non-empty (m, d) and (N, d) with one d, not {q.shape} and {k.shape}."
        )
    if beta.shape != () or weights.shape != k.shape[:1]:
        raise InvalidWitness(f"beta must be one number and log_weights of shape ({len(k)},).")
    for name, array in (("q", q), ("k", k), ("beta", beta)):
        if not np.isfinite(array).all():
            raise InvalidWitness(f"{name} has NaN or infinite entries.")
    if np.isnan(weights).any() or (weights == np.inf).any():
        raise InvalidWitness("log_weights have NaN or +inf entries.")
    mask = subject.get("mask")
    if mask is not None:
        if mask.dtype.kind == "U" and mask.shape == () and str(mask) == "causal":
            mask = "causal"
        elif mask.dtype != np.uint8 or mask.shape != (len(q), -(-len(k) // 8)):
            raise InvalidWitness('mask must be "causal" or packed bits, uint8 of shape (m, ceil(N / 8)).')
    return Factored(q, k, float(beta), weights, mask)


def _real(subject: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    if subject[name].dtype.kind not in "fiu":
        raise InvalidWitness(f"{name} must be real numbers, not {subject[name].dtype}.")
    return subject[name].astype(np.float64)
