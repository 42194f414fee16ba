"""Brackets and profiles of factored attention without its matrix: the choice of path, and the new one."""

import contextlib
import math
import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich.console import Console

from .._clock import Clock
from .._precision import search_dtype
from ..certify import Certificate
from ._factored import FactoredAttention
from ._stream import BLOCK, stream
from ._stream_basis import MOST, Basis, find_basis
from ._stream_bernstein import Aggregate, aggregate
from ._stream_lower import Flat, Spectrum, exact, witness
from ._stream_upper import Found, few_factors, fixed_rank

DENSE = 2**16  # entries up to which the matrix is formed and searched as one
DENSE_BYTES = 320  # of search memory for every entry of such a matrix
LEAST_LANDMARKS, LEAST_BLOCK = 64, 2**18
BASIS_ACCURACY = 0.1  # of the tolerance: how far rows may be from the span of the landmarks
CANDIDATES = 4  # ranks tried at once between the two ends
CLAIM = 1e-9  # relative slack of a claim, so that another machine's rounding verifies it too
KEPT_FACTORS = 2  # factor pairs kept in case the last one fails in float64


@dataclass(frozen=True)
class Budget:
    """Passes over the matrix for one upper end and how many of them at most for one rank; size of the
    aggregate, steps and rounds of the search for Bernstein numbers."""

    passes: int
    patience: int
    aggregate: int
    steps: int
    rounds: int


# Passes are for a matrix of 2^24 entries; smaller ones get more, as a pass costs less.
BUDGETS = {
    "fast": Budget(20, 12, 96, 300, 2),
    "normal": Budget(50, 25, 128, 800, 3),
    "thorough": Budget(150, 50, 192, 2000, 4),
}


@dataclass(frozen=True)
class Plan:
    """The path: the formed matrix, or blocks of ``block`` entries and at most ``landmarks`` rows."""

    dense: bool
    block: int = BLOCK
    landmarks: int = MOST


def plan(shape: tuple[int, int], memory_limit: float | None) -> Plan:
    """Choose the path by size, and by what fits into ``memory_limit`` bytes of search memory.

    Raises:
        ValueError: not even the smallest blocks fit.
    """
    small = math.prod(shape) <= DENSE
    if memory_limit is None:
        return Plan(small)
    if not memory_limit > 0:
        raise ValueError(f"memory_limit must be a positive number of bytes, got {memory_limit!r}.")
    if small and DENSE_BYTES * math.prod(shape) <= memory_limit:
        return Plan(True)
    landmarks, block = MOST, BLOCK
    while streamed_bytes(shape, block, landmarks) > memory_limit:
        if landmarks == LEAST_LANDMARKS and block == LEAST_BLOCK:
            least = streamed_bytes(shape, block, landmarks)
            raise ValueError(
                f"memory_limit of {memory_limit / 1e6:.0f} MB is too small for a {shape[0]} x {shape[1]} "
                f"attention: the least is {math.ceil(least / 1e6)} MB (the interpreter and JAX not counted)."
            )
        if block > LEAST_BLOCK:
            block //= 2
        else:
            landmarks //= 2
    return Plan(False, block, landmarks)


def streamed_bytes(shape: tuple[int, int], block: int, landmarks: int) -> int:
    """Search memory of the streamed path: blocks, the checker's blocks, and arrays of m + N rows."""
    m, n = shape
    entries, directions = m * n, min(landmarks, m)
    return 40 * min(max(block, n), entries) + 40 * min(2**22, entries) + 48 * (m + n) * directions


class Streamed:
    """Best certificates per rank for one factored attention; ``lower[k]`` and ``upper[k]`` bound a_{k+1}."""

    def __init__(
        self,
        attention: FactoredAttention,
        chosen: Plan,
        effort: str,
        seed: int,
        precision: str | None,
        report: Callable[[str], None],
    ):
        self.attention, self.plan, self.report = attention, chosen, report
        ease = float(np.clip((2**24 / math.prod(attention.shape)) ** 0.5, 0.5, 12))
        given = BUDGETS[effort]
        self.budget = replace(given, passes=round(ease * given.passes), patience=round(ease * given.patience))
        self.rng = np.random.default_rng(seed)
        self.data = stream(attention, search_dtype(precision), chosen.block)
        self.subject = attention.subject
        self.lower: dict[int, Certificate] = {}
        self.upper: dict[int, Certificate] = {}
        self.passes = 0
        self.aggregate: Aggregate | None = None
        self.clock = Clock()
        self.whole = min(attention.shape)
        self._certify("rank-lower", 0, {})
        self._certify("rank-upper", 0, {})
        self._certify("rank-upper", self.whole, {})

    def search(self, tolerances: Sequence[float]) -> None:
        """Push both ends of r_eps for these tolerances, all below 1."""
        if not tolerances:
            return
        self.report(f"landmarks of {self.attention}")
        accuracy = BASIS_ACCURACY * min(tolerances)
        basis = find_basis(self.data, self.attention, accuracy, self.plan.landmarks, self.rng)
        spectrum = Spectrum(basis)
        for eps in tolerances:
            self.report(f"lower end, eps = {eps:g}")
            flat = exact(self.data, spectrum.for_eps(eps))
            rank = min(flat.rank(eps), self.whole - 1)
            if rank > 0:
                self._lower(flat, rank)
        del spectrum
        for eps in tolerances:
            kept: list[Found] = []
            for found in few_factors(
                self.data, basis, eps, self.budget.passes, self.budget.patience, self.report
            ):
                kept = [found, *kept[: KEPT_FACTORS - 1]]
            for found in kept:
                if self._upper(found) <= eps:
                    break
            self._bernstein(basis, eps)

    def _bernstein(self, basis: Basis, eps: float) -> None:
        """Raise the lower end by searches on an aggregate, if its rank is small enough for that."""
        lower = max((k + 1 for k, c in self.lower.items() if c.claim["error"] > eps), default=1)
        upper = min(k for k, c in self.upper.items() if c.claim["error"] <= eps)
        if lower > min(upper - 1, self.budget.aggregate // 2):
            return
        if self.aggregate is None:
            self.aggregate = aggregate(self.attention.exact, basis, self.budget.aggregate)
        top, best = min(upper - 1, self.aggregate.most), None
        for _ in range(self.budget.rounds):
            if lower > top:
                break
            ranks = sorted(set(np.linspace(lower, top, CANDIDATES).astype(int).tolist()))
            self.report(f"lower end: Bernstein numbers at ranks {ranks}")
            found = self.aggregate.search(ranks, self.budget.steps, self.data.dtype, self.rng)
            enough = [f for f in found if f.error > eps * (1 + CLAIM)]
            if enough:
                best = max(enough, key=lambda f: f.rank)
                lower = best.rank + 1
            top = min([f.rank for f in found if f.rank >= lower], default=top + 1) - 1
        if best is not None:
            self._certify("rank-lower", best.rank, best.witness)

    def search_ranks(self, ranks: Sequence[int]) -> None:
        """Push both ends of a_{k+1} for these k, all between 1 and full rank."""
        if not ranks:
            return
        basis = find_basis(self.data, self.attention, 1e-3, self.plan.landmarks, self.rng)
        spectrum = Spectrum(basis)
        for rank in ranks:
            self.report(f"lower end, rank {rank}")
            flat = spectrum.for_rank(rank)
            if flat is not None:
                self._lower(exact(self.data, flat), rank)
        del spectrum
        small = aggregate(self.attention.exact, basis, self.budget.aggregate)
        wanted = [rank for rank in ranks if rank <= small.most]
        for i in range(0, len(wanted), CANDIDATES):
            self.report(f"lower end: Bernstein numbers at ranks {wanted[i : i + CANDIDATES]}")
            for f in small.search(wanted[i : i + CANDIDATES], self.budget.steps, self.data.dtype, self.rng):
                self._certify("rank-lower", f.rank, f.witness)
        for rank in ranks:
            if rank <= basis.size:
                self.report(f"upper end, rank {rank}")
                self._upper(fixed_rank(self.data, basis, rank, self.budget.patience))

    def cost(self) -> dict[str, float]:
        """Seconds, how many of them went to compilation, steps of the upper descents, and the peak memory
        of the process in MB."""
        return {
            **self.clock.cost(),
            "lane_steps": self.passes,
            "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }

    def _lower(self, flat: Flat, rank: int) -> None:
        self.report(f"verifying the lower end at rank {rank}")
        self._certify("rank-lower-psd", rank, witness(flat), flat.error(rank) * (1 - 1e-3))

    def _upper(self, found: Found) -> float:
        self.report(f"verifying the upper end at rank {found.rank}")
        self.passes += found.passes
        return self._certify("rank-upper", found.rank, {"U": found.left, "W": found.right})

    def _certify(
        self, kind: str, rank: int, arrays: dict[str, np.ndarray], error: float | None = None
    ) -> float:
        """Verify, and keep the certificate if it proves more than the one at hand; returns what it claims."""
        upper = kind == "rank-upper"
        claim = {"rank": rank, "error": error if error is not None else 2.0 if upper else 0.0}
        bound = Certificate(kind, claim, arrays, self.subject).verify().bound
        bound = bound * (1 + CLAIM) if upper else bound * (1 - CLAIM)
        table = self.upper if upper else self.lower
        if math.isnan(bound) or (not upper and bound <= 0):
            return math.inf
        if rank not in table or (bound < table[rank].claim["error"]) == upper:
            table[rank] = Certificate(kind, {"rank": rank, "error": bound}, arrays, self.subject)
        return bound


@contextlib.contextmanager
def progress(report: Callable[[str], None] | None) -> Iterator[Callable[[str], None]]:
    """``report`` if there is one, else a status line on stderr."""
    if report is not None:
        yield report
        return
    with Console(stderr=True).status("streaming") as status:
        yield lambda line: status.update(line)


def focused(
    attention: FactoredAttention,
    chosen: Plan,
    eps: Sequence[float],
    effort: str,
    seed: int,
    precision: str | None,
    report: Callable[[str], None] | None,
) -> Streamed:
    """The streamed search of ``focused_profile``."""
    with progress(report) as line:
        search = Streamed(attention, chosen, effort, seed, precision, line)
        search.search([e for e in eps if e < 1])
    return search


def at_ranks(
    attention: FactoredAttention,
    chosen: Plan,
    ranks: Sequence[int],
    effort: str,
    seed: int,
    precision: str | None,
) -> Streamed:
    """The streamed search of ``error_profile``."""
    with progress(None) as line:
        search = Streamed(attention, chosen, effort, seed, precision, line)
        search.search_ranks([k for k in ranks if 0 < k < search.whole])
    return search


def choose(matrix: Any, memory_limit: float | None) -> tuple[Any, Plan]:
    """What to search, and how: factored attention that is small comes back as its matrix.

    Raises:
        ValueError: no path fits into ``memory_limit``.
    """
    if isinstance(matrix, FactoredAttention):
        chosen = plan(matrix.shape, memory_limit)
        return (matrix.dense() if chosen.dense else matrix), chosen
    if memory_limit is not None:
        shape = np.shape(getattr(matrix, "array", matrix))
        least = DENSE_BYTES * math.prod(shape)
        if least > memory_limit:
            raise ValueError(
                f"memory_limit of {memory_limit / 1e6:.0f} MB is too small to search a formed matrix of "
                f"shape {shape}: the least is {math.ceil(least / 1e6)} MB, or pass a FactoredAttention."
            )
    return matrix, Plan(True)
