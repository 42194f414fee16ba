"""The state of one investigation: the best verified certificate found so far for every rank.

Searches propose witnesses; a cheap float64 screen picks the best one per rank; the checker turns it into
a certificate that claims exactly what was proved. ``Explorer`` is what profile and bracket share.
"""

import math
import resource
from collections import Counter
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from .._clock import Clock
from .._precision import search_dtype
from ..certify import Certificate
from ._constructions import cross, row_cover, truncated_svd
from ._descend import LaneCode
from ._effort import Effort
from ._lower import polish_lower, search_lower
from ._one_dimensional import line
from ._refine import refine_lower
from ._summing import two_summing
from ._target import Target
from ._upper import polish_upper, search_upper

PSD_ROUNDS = 2  # a psd certificate is verified this often, each time claiming what was just proved


class Explorer:
    """Best certificates per rank for one target; ``lower[k]`` and ``upper[k]`` bound a_{k+1}."""

    def __init__(
        self,
        target: Target,
        effort: Effort,
        seed: int,
        report: Callable[[str], None] | None = None,
        precision: str | None = None,
    ):
        self.target = target
        self.effort = effort
        self.report = report or (lambda line: None)
        self.rng = np.random.default_rng(seed)
        self.dtype = search_dtype(precision)
        self.full_rank = min(target.matrix.shape)
        self.lower: dict[int, Certificate] = {}
        self.upper: dict[int, Certificate] = {}
        self.steps = 0
        self.codes: Counter[str] = Counter()
        self.clock = Clock()
        self.line = line(target.full)
        self._certify("rank-lower", 0, {})
        self._certify("rank-upper", 0, {})
        whole = min(target.full.shape)
        self._certify("rank-upper", whole, {})
        u, s, vt = np.linalg.svd(target.matrix)
        self._svd = u, s, vt

    def lower_bound(self, rank: int) -> float:
        """The best proved lower bound on a_{rank+1} (a bound at a higher rank also counts)."""
        return max((c.claim["error"] for k, c in self.lower.items() if k >= rank), default=0.0)

    def upper_bound(self, rank: int) -> float:
        """The best proved upper bound on a_{rank+1} (a bound at a lower rank also counts)."""
        return min(c.claim["error"] for k, c in self.upper.items() if k <= rank)

    def width(self, rank: int) -> int:
        """The padded number of components: half or all of the full rank, so at most two compilations."""
        half = self.full_rank // 2 + 1
        return half if rank + 1 <= half else self.full_rank

    def screen(self) -> tuple[np.ndarray, np.ndarray]:
        """Cheap float64 estimates [lower, upper] of a_{k+1} for k = 0 .. full_rank, from the SVD."""
        a, (u, s, vt) = self.target.matrix, self._svd
        low, high = np.zeros(self.full_rank + 1), np.zeros(self.full_rank + 1)
        low[0] = high[0] = 1.0
        for k in range(1, self.full_rank):
            high[k] = min(np.abs(a - (u[:, :k] * s[:k]) @ vt[:k]).sum(1).max(), high[k - 1])
            if s[k] > 1e-13 * s[0]:
                low[k] = 1 / np.abs((vt[: k + 1].T / s[: k + 1]) @ u[:, : k + 1].T).sum(1).max()
        return np.maximum.accumulate(low[::-1])[::-1], high

    def construct(self, ranks) -> None:
        """Certify the explicit constructions at these ranks: SVD, row cover, cross; or full rank."""
        for rank in ranks:
            if rank >= self.full_rank:
                self._certify("rank-upper", rank, self.target.lift_upper(*self._exact(rank)))
            elif rank > 0:
                makers = (truncated_svd, row_cover, cross)
                self._best_upper(rank, [make(self.target.matrix, rank) for make in makers])

    def search_upper(self, ranks, starts, steps: int) -> None:
        """One lane per (rank, start); the best of each rank is certified."""
        ranks, starts = self._lanes(ranks, starts)
        if not len(ranks):
            return
        width = self.width(int(ranks.max()))
        self.report(f"upper search: {len(ranks)} lanes, ranks {ranks.min()} to {ranks.max()}")
        found, codes = search_upper(self.target.matrix, ranks, starts, steps, self.dtype, self.rng, width)
        self.steps += steps * len(ranks)
        self.codes.update(LaneCode(c).name.lower() for c in codes)
        for rank in np.unique(ranks):
            candidates = [f for f, r in zip(found, ranks, strict=True) if r == rank]
            self._best_upper(int(rank), candidates)

    def search_lower(self, ranks, starts, steps: int) -> None:
        """One lane per (rank, start); the best of each rank is certified."""
        ranks, starts = self._lanes(ranks, starts)
        if not len(ranks):
            return
        width = self.width(int(ranks.max()))
        self.report(f"lower search: {len(ranks)} lanes, ranks {ranks.min()} to {ranks.max()}")
        found, codes = search_lower(self.target.matrix, ranks, starts, steps, self.dtype, self.rng, width)
        self.steps += steps * len(ranks)
        self.codes.update(LaneCode(c).name.lower() for c in codes)
        for rank in np.unique(ranks):
            candidates = [f for f, r in zip(found, ranks, strict=True) if r == rank]
            right, weights = min(
                candidates, key=lambda f: np.nan_to_num(np.abs(f[1]).sum(1).max(), nan=np.inf)
            )
            if np.isfinite(weights).all():
                right, weights = refine_lower(self.target.matrix, right, weights)
            if self.effort.polish:
                weights = polish_lower(self.target.matrix, right, weights)
            if np.isfinite(weights).all():
                self._certify("rank-lower", int(rank), self.target.lift_lower(right, weights))
            if self.effort.summing:
                right, weights = two_summing(self.target.matrix, int(rank))
                self._certify("rank-lower-psd", int(rank), self.target.lift_summing(right, weights))

    def solve_line(self, ranks) -> None:
        """The exact solution of a one-dimensional interaction at these ranks."""
        assert self.line is not None
        for rank in ranks:
            if 0 < rank < self.full_rank and rank not in self.lower:
                self.report(f"one-dimensional interaction: rank {rank}")
                lower, upper = self.line.solve(rank)
                if lower is not None:
                    self._certify("rank-lower-1d", rank, lower)
                if upper is not None:
                    self._certify("rank-upper", rank, upper)

    def cost(self) -> dict[str, float]:
        """Seconds, how many of them went to compilation, lane steps, how lanes ended, and the peak memory
        of the process in MB."""
        return {
            **self.clock.cost(),
            "lane_steps": self.steps,
            **{f"lanes_{code.name.lower()}": self.codes[code.name.lower()] for code in LaneCode},
            "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }

    def _lanes(self, ranks, starts) -> tuple[np.ndarray, np.ndarray]:
        ranks, starts = np.asarray(ranks, int), np.asarray(starts, int)
        useful = (ranks > 0) & (ranks < self.full_rank)
        return ranks[useful], starts[useful]

    def _best_upper(self, rank: int, candidates) -> None:
        a = self.target.matrix
        error = lambda f: np.nan_to_num(np.abs(a - f[0] @ f[1]).sum(1).max(), nan=np.inf)
        left, right = min(candidates, key=error)
        if self.effort.polish:
            left = polish_upper(a, left, right)
        if np.isfinite(left).all() and np.isfinite(right).all():
            self._certify("rank-upper", rank, self.target.lift_upper(left, right))

    def _exact(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        a = self.target.matrix
        left, right = (np.eye(len(a)), a) if a.shape[0] <= a.shape[1] else (a, np.eye(a.shape[1]))
        pad = rank - left.shape[1]
        return np.pad(left, ((0, 0), (0, pad))), np.pad(right, ((0, pad), (0, 0)))

    def _certify(self, kind: str, rank: int, witness: dict[str, np.ndarray]) -> None:
        """Keep the certificate if it proves more than the one at hand."""
        upper = kind == "rank-upper"
        claim = {"rank": rank, "error": 2.0 if upper else 0.0}
        bound = Certificate(kind, claim, witness, self.target.subject).verify().bound
        if kind == "rank-lower-psd":  # proves more the larger the claim it starts from
            for _ in range(PSD_ROUNDS):
                again = Certificate(kind, {"rank": rank, "error": bound}, witness, self.target.subject)
                bound = max(bound, again.verify().bound)
            bound *= 1 - 1e-12  # the last gain may not verify at its own value
        best = (self.upper if upper else self.lower).get(rank)
        if math.isnan(bound) or (not upper and bound <= 0):
            return
        if best is None or ((bound < best.claim["error"]) == upper and bound != best.claim["error"]):
            proved = Certificate(kind, {"rank": rank, "error": bound}, witness, self.target.subject)
            (self.upper if upper else self.lower)[rank] = proved


def seed_of(key) -> int:
    """A NumPy seed from a JAX PRNG key (or an int, or None for 0)."""
    if key is None:
        return 0
    if isinstance(key, int):
        return key
    data = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    return int.from_bytes(np.asarray(data).tobytes(), "little")
