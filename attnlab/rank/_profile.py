"""Error profiles and rank brackets: the two results of the rank half of the library."""

from typing import Any

import equinox as eqx
import numpy as np
from numpy.typing import ArrayLike

from ..certify import Certificate
from ._effort import effort_named
from ._explorer import Explorer, seed_of
from ._factored import FactoredAttention
from ._streamed import Streamed, at_ranks, choose
from ._target import Logits, target

WIDE = 1.1  # ranks whose ends differ by more than this factor get a second round of starts


class RankBracket(eqx.Module):
    """lower <= r_eps(A) <= upper, each end with the certificate that proves it.

    Attributes:
        eps: the tolerance (largest row l1 error).
        lower_certificate: proves that no smaller rank will do; ``None`` when lower is 0.
        upper_certificate: factors of rank ``upper`` within eps.
        cost: of the whole search this bracket came from: seconds, the compile_seconds among them,
            compilations, lane steps, peak memory in MB.
    """

    eps: float
    lower: int
    upper: int
    lower_certificate: Certificate | None = eqx.field(static=True)
    upper_certificate: Certificate = eqx.field(static=True)
    cost: dict[str, float] = eqx.field(static=True)

    @property
    def closed(self) -> bool:
        """Whether the bracket is a single number."""
        return self.lower == self.upper

    def __repr__(self) -> str:
        inside = f"= {self.lower}" if self.closed else f"in [{self.lower}, {self.upper}]"
        return f"RankBracket(r_{self.eps:g} {inside}, certified)"


class ErrorProfile(eqx.Module):
    """Certified bounds on the approximation numbers a_{k+1} = inf over rank(B) <= k of max_i ||A_i - B_i||_1.

    Attributes:
        ranks: (p,) increasing k.
        lower, upper: (p,) bounds on a_{k+1}, non-increasing.
        lower_certificates, upper_certificates: the certificate behind each bound. A certificate may be
            for a higher rank (lower) or a smaller rank (upper) than the entry it serves.
        cost: seconds, the compile_seconds among them, compilations, lane steps, peak memory in MB.
    """

    ranks: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    lower_certificates: tuple[Certificate | None, ...] = eqx.field(static=True)
    upper_certificates: tuple[Certificate, ...] = eqx.field(static=True)
    cost: dict[str, float] = eqx.field(static=True)

    def bracket(self, eps: float) -> RankBracket:
        """The bracket on r_eps that this profile proves, without new search."""
        eps = check_eps(eps)
        above, within = np.flatnonzero(self.lower > eps), np.flatnonzero(self.upper <= eps)
        lower_certificate = self.lower_certificates[above[-1]] if above.size else None
        upper_certificate = self.upper_certificates[within[0]]
        return RankBracket(
            eps,
            0 if lower_certificate is None else lower_certificate.claim["rank"] + 1,
            upper_certificate.claim["rank"],
            lower_certificate,
            upper_certificate,
            self.cost,
        )

    def __repr__(self) -> str:
        lines = [
            f"  k={k:<4d} {low:.4g} <= a_{k + 1} <= {high:.4g}"
            for k, low, high in zip(self.ranks, self.lower, self.upper, strict=True)
        ]
        return "ErrorProfile(certified\n" + "\n".join(lines) + "\n)"


def error_profile(
    A: ArrayLike | Logits | FactoredAttention,
    ranks: ArrayLike | None = None,
    *,
    key: Any = None,
    effort: str = "normal",
    precision: str | None = None,
    memory_limit: float | None = None,
) -> ErrorProfile:
    """Certified lower and upper bounds on the error of the best rank-k approximation, for many k.

    a_{k+1}(A) = inf over rank(B) <= k of max_i ||A_i - B_i||_1, the worst change of any output that
    averages bounded values; r_eps = min{k : a_{k+1} <= eps}. Lower ends are Bernstein numbers (or
    the exact value when the interaction is one-dimensional), upper ends are measured factors. Certificates
    are always float64 on the host, whatever the precision of the search.

    Arguments:
        A: (m, N) row-stochastic matrix, ``Logits``, or ``FactoredAttention``.
        ranks: the k wanted, in 0 .. min(m, N); default 1, 2, 3, 4, 6, 8, 12, ... Rank 0 and full
            rank are always added: they cost nothing.
        key: PRNG key (or int) of the random starts.
        effort: "fast", "normal" or "thorough".
        precision: of the search, "float32" (default) or "float64".
        memory_limit: bytes the search may take, see ``bracket``.

    Raises:
        ValueError: invalid A, ranks, effort or precision; float64 while it is off in JAX; a memory limit
            too small for any path.

    >>> profile = error_profile(np.eye(3), effort="fast")
    >>> profile.bracket(0.5)
    RankBracket(r_0.5 = 3, certified)
    """
    spent = effort_named(effort)
    A, chosen = choose(A, memory_limit)
    if isinstance(A, FactoredAttention):
        wanted = _check_ranks(ranks, min(A.shape))
        return profile_of(at_ranks(A, chosen, wanted, effort, seed_of(key), precision), wanted)
    explorer = Explorer(target(A), spent, seed_of(key), precision=precision)
    wanted = _check_ranks(ranks, min(explorer.target.full.shape))
    inner = [k for k in wanted if 0 < k < explorer.full_rank]
    explorer.construct(wanted)
    if explorer.line is not None:
        explorer.solve_line(inner)
    starts = explorer.effort.starts
    for attempt, ratio in enumerate((1.001, WIDE)):
        ranks = [k for k in inner if explorer.upper_bound(k) > ratio * explorer.lower_bound(k)]
        fresh = np.arange(starts) + attempt * starts
        lanes = np.repeat(ranks, starts).astype(int), np.tile(fresh, len(ranks))
        explorer.search_upper(*lanes, explorer.effort.upper_steps)
        explorer.search_lower(*lanes, explorer.effort.lower_steps)
    return profile_of(explorer, wanted)


def profile_of(explorer: Explorer | Streamed, ranks: list[int]) -> ErrorProfile:
    """The monotone profile that the explorer's certificates prove."""
    lowers, uppers = [], []
    for k in ranks:
        above = [c for j, c in explorer.lower.items() if j >= k]
        below = [c for j, c in explorer.upper.items() if j <= k]
        lowers.append(max(above, key=lambda c: c.claim["error"], default=None))
        uppers.append(min(below, key=lambda c: c.claim["error"]))
    return ErrorProfile(
        np.array(ranks),
        np.array([0.0 if c is None else c.claim["error"] for c in lowers]),
        np.array([c.claim["error"] for c in uppers]),
        tuple(lowers),
        tuple(uppers),
        explorer.cost(),
    )


def check_eps(eps: float) -> float:
    """Raises ValueError unless 0 < eps < 2."""
    try:
        value = float(eps)
    except (TypeError, ValueError):
        raise ValueError(f"eps must be a number between 0 and 2, got {eps!r}.") from None
    if not 0 < value < 2:
        raise ValueError(f"eps must lie strictly between 0 and 2 (a row l1 error), got {value:g}.")
    return value


def _check_ranks(ranks: ArrayLike | None, most: int) -> list[int]:
    if ranks is None:
        steps = [2**i * f for i in range(40) for f in (2, 3)]
        wanted = [1, *(k for k in sorted(steps) if k < most)]
    else:
        values = np.atleast_1d(np.asarray(ranks))
        if values.dtype.kind not in "iu" or values.ndim != 1 or not values.size:
            raise ValueError(f"ranks must be a list of integers, got {ranks!r}.")
        if values.min() < 0 or values.max() > most:
            raise ValueError(f"ranks must lie in 0 .. min(m, N) = {most}, got {values.tolist()}.")
        wanted = values.tolist()
    return sorted({0, most, *wanted})
