"""The tightest bracket on r_eps: search is spent only on ranks that can still move an end."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ._effort import effort_named
from ._explorer import Explorer, seed_of
from ._factored import FactoredAttention
from ._profile import ErrorProfile, RankBracket, check_eps, profile_of
from ._streamed import choose, focused
from ._target import Logits, target

COARSE_LANES = 24  # lanes of a round that locates the upper ends
LOWER_ROUNDS = 4  # of searches for the lower ends, at most
CLOSE = 0.97  # a lower value of at least this share of eps may still rise above it
NEAR = 1.3  # a coarse error within this factor of eps may still come down to it


def bracket(
    A: ArrayLike | Logits | FactoredAttention,
    eps: float,
    *,
    key: Any = None,
    effort: str = "normal",
    precision: str | None = None,
    memory_limit: float | None = None,
) -> RankBracket:
    """Certified bracket on r_eps(A), the least rank within eps of A in every row (l1).

    Arguments:
        A: (m, N) row-stochastic matrix, ``Logits``, or ``FactoredAttention``.
        eps: tolerance, 0 < eps < 2.
        key: PRNG key (or int) of the random starts.
        effort: "fast", "normal" or "thorough".
        precision: of the search, "float32" (default) or "float64"; certificates are always float64.
        memory_limit: bytes the search may take. Factored attention is searched as a matrix if it is
            small and that fits, else in blocks of rows, with memory proportional to (m + N) times the rank.

    Raises:
        ValueError: invalid A, eps, effort or precision; float64 while it is off in JAX; a memory limit
            too small for any path; logits too large for a streamed search in float32.

    >>> bracket(np.eye(8), 0.99, effort="fast")
    RankBracket(r_0.99 = 8, certified)
    """
    options: Any = {"key": key, "effort": effort, "precision": precision, "memory_limit": memory_limit}
    return brackets(A, [eps], **options)[0]


def brackets(
    A: ArrayLike | Logits | FactoredAttention,
    eps: Sequence[float],
    *,
    key: Any = None,
    effort: str = "normal",
    precision: str | None = None,
    memory_limit: float | None = None,
) -> list[RankBracket]:
    """``bracket`` for several tolerances at once, sharing the search.

    >>> [b.upper for b in brackets(np.ones((4, 4)) / 4, [0.1, 1.5], effort="fast")]
    [1, 0]
    """
    options: Any = {"key": key, "effort": effort, "precision": precision, "memory_limit": memory_limit}
    profile = focused_profile(A, eps, **options)
    return [profile.bracket(e) for e in eps]


def focused_profile(
    A: ArrayLike | Logits | FactoredAttention,
    eps: Sequence[float],
    *,
    key: Any = None,
    effort: str = "normal",
    precision: str | None = None,
    memory_limit: float | None = None,
    report: Callable[[str], None] | None = None,
) -> ErrorProfile:
    """An error profile whose search is spent on the ranks where it crosses the tolerances.

    It holds every rank that got a certificate; ``.bracket(e)`` is then as tight as ``bracket(A, e)``
    for each of these tolerances, and valid for any other.

    Arguments:
        A, key, effort, precision, memory_limit: as in ``bracket``.
        eps: tolerances, each 0 < eps < 2.
        report: called with a line on what is being searched, for progress displays.

    Raises:
        ValueError: invalid A, eps, effort or precision; float64 while it is off in JAX.

    >>> focused_profile(np.eye(8), [0.5], effort="fast").bracket(0.5)
    RankBracket(r_0.5 = 8, certified)
    """
    wanted = [check_eps(e) for e in eps]
    if not wanted:
        raise ValueError("eps is empty: give at least one tolerance.")
    spent = effort_named(effort)
    A, chosen = choose(A, memory_limit)
    if isinstance(A, FactoredAttention):
        search = focused(A, chosen, wanted, effort, seed_of(key), precision, report)
        return profile_of(search, sorted({0, search.whole, *search.lower, *search.upper}))
    explorer = Explorer(target(A), spent, seed_of(key), report, precision)
    inner = [e for e in wanted if e < 1]
    if explorer.line is not None:
        for e in inner:
            _bisect_line(explorer, e)
    _locate(explorer, [e for e in inner if not _closed(explorer, e)])
    _lower_ends(explorer, inner)
    return profile_of(
        explorer, sorted({0, min(explorer.target.full.shape), *explorer.lower, *explorer.upper})
    )


def _least_upper(explorer: Explorer, eps: float) -> int:
    return min(k for k, c in explorer.upper.items() if c.claim["error"] <= eps)


def _greatest_lower(explorer: Explorer, eps: float) -> int:
    """The proved lower end of r_eps."""
    return max((k + 1 for k, c in explorer.lower.items() if c.claim["error"] > eps), default=0)


def _closed(explorer: Explorer, eps: float) -> bool:
    return _greatest_lower(explorer, eps) >= _least_upper(explorer, eps)


def _bisect_line(explorer: Explorer, eps: float) -> None:
    """Exact solutions at the ranks next to r_eps, found by bisection between the two SVD estimates."""
    low, high = (int(np.argmax(x <= eps)) for x in explorer.screen())
    low = max(low - 1, 0)
    explorer.construct([high])
    while high - low > 1:
        middle = (low + high) // 2
        explorer.solve_line([middle])
        if explorer.lower_bound(middle) > eps:
            low = middle
        else:
            high = middle
    explorer.solve_line([low, high])


def _locate(explorer: Explorer, tolerances: list[float]) -> None:
    """Find the least rank whose factors reach each eps: coarse lanes first, then long ones around it."""
    if not tolerances:
        return
    low, high = explorer.screen()
    full = explorer.full_rank
    explorer.construct([full])
    # a_{k+1} <= eps is impossible for k < start and certain for k = end.
    start = {e: int(np.argmax(low <= e)) for e in tolerances}
    end = {e: int(np.argmax(high <= e)) for e in tolerances}
    explorer.construct({end[e] for e in tolerances})
    share = max(COARSE_LANES // len(tolerances), 2)
    coarse = max(explorer.effort.upper_steps // 4, 200)
    searched: set[int] = set()  # a rank that only has a construction still deserves a search
    for _ in range(4):
        ranks: list[int] = []
        for e in tolerances:
            gap = np.arange(start[e], end[e])
            if len(gap):
                ranks += sorted(set(gap[np.linspace(0, len(gap) - 1, share).astype(int)].tolist()))
        ranks = sorted({*ranks} - searched)
        if not ranks:
            break
        searched.update(ranks)
        explorer.search_upper(ranks, np.zeros(len(ranks)), coarse)
        for e in tolerances:
            end[e] = _least_upper(explorer, e)
            short = [k for k in searched if k < end[e] and explorer.upper_bound(k) > e]
            start[e] = max(start[e], max(short, default=0) + 1)
    # Long lanes at the last ranks that failed: they decide whether the upper end moves down.
    for _ in range(2):
        lanes = [
            (k, start)
            for e in tolerances
            for k in (_least_upper(explorer, e) - 1, _least_upper(explorer, e) - 2)
            for start in range(1, 1 + explorer.effort.starts)
            if k > 0 and explorer.upper_bound(k) < NEAR * e
        ]
        before = [_least_upper(explorer, e) for e in tolerances]
        if lanes:
            ranks_tried, starts_tried = np.array(lanes).T
            explorer.search_upper(ranks_tried, starts_tried, explorer.effort.upper_steps)
        if before == [_least_upper(explorer, e) for e in tolerances]:
            break


def _lower_ends(explorer: Explorer, tolerances: list[float]) -> None:
    """Push the lower ends up: first around the upper ends, then where the found values cross eps."""
    starts = explorer.effort.starts
    for attempt in range(LOWER_ROUNDS):
        lanes: set[tuple[int, int]] = set()
        before = {e: _greatest_lower(explorer, e) for e in tolerances}
        for e in tolerances:
            bottom, top = _greatest_lower(explorer, e), _least_upper(explorer, e)
            if bottom >= top:
                continue
            # Rank k proves r_eps >= k + 1: candidates are k = bottom .. top - 1.
            if attempt == 0:
                ranks = {top - 1, top - 2, (3 * top + bottom) // 4, (top + bottom) // 2}
            else:
                middle = _crossing(explorer, e, bottom, top)
                ranks = {middle - 1, middle, middle + 1}
            ranks = {k for k in ranks if bottom <= k < top}
            first = starts * attempt // 2
            lanes |= {(k, s) for k in ranks for s in range(first, first + max(starts // 2, 2))}
        if not lanes:
            break
        ranks_tried, starts_tried = np.array(sorted(lanes)).T
        explorer.search_lower(ranks_tried, starts_tried, explorer.effort.lower_steps)
        if attempt:  # an end that neither moved nor came near its next value is left
            tolerances = [
                e
                for e in tolerances
                if _greatest_lower(explorer, e) > before[e] or explorer.lower_bound(before[e]) > CLOSE * e
            ]


def _crossing(explorer: Explorer, eps: float, bottom: int, top: int) -> int:
    """The rank in bottom .. top - 1 at which the lower values, interpolated in logarithms, reach eps."""
    value = {k: c.claim["error"] for k, c in explorer.lower.items()}
    failed = min((k for k in value if bottom <= k < top), default=None)
    if failed is None:
        return top - 1
    last = bottom - 1
    share = np.log(value[last] / eps) / np.log(value[last] / value[failed])
    return int(np.clip(np.round(last + share * (failed - last)), bottom, top - 1))
