"""The profile of an attention matrix: the best retained interaction of every rank."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax import Array
from numpy.typing import ArrayLike
from rich.console import Console

from ..certify import Certificate
from ._intrinsic import _matrix, double_centre, intrinsic
from ._radius import _reduced as reduced
from ._radius import factor_radius, solve_designs
from ._residual import column_gauge, exact_tau, residual
from ._search import search

STEPS = 800
KAPPA_TOLERANCE = 1e-3  # relative gap at which the reported kappa stops being refined
ROW_SUM = 1e-5  # float32 softmax rows pass
SAME = 1e-3  # how far q k' may be from log A, relative to its size


@dataclass(frozen=True, eq=False)
class Retained:
    """One retained interaction T = left @ right.T of rank r.

    Attributes:
        left, right: shape (m, r), (N, r).
        kappa: an upper value of the factor radius of T (float64; ``certificates`` proves it).
        tau: l1 cost of keeping only T, with the best key weights (float64; likewise).
        origin: the start it came from: ``svd``, ``native``, ``random`` and ``searched`` or not.
    """

    left: np.ndarray
    right: np.ndarray
    kappa: float
    tau: float
    origin: str

    def cost(self, eps: float) -> float:
        """kappa / (eps - tau)^2, ``inf`` where tau >= eps: the bound is void."""
        return self.kappa / (eps - self.tau) ** 2 if self.tau < eps else np.inf

    def term(self, eps: float) -> float:
        """(1 + kappa / (eps - tau)^2)^(r/2), the bound of [I] without its constant C_r."""
        return float((1 + self.cost(eps)) ** (self.left.shape[1] / 2))

    def implied_constant(self, eps: float, rank: float) -> float:
        """C_r if the bound were attained: ``rank / term``.

        With a certified lower end of r_eps(A) as ``rank``, and kappa and tau certified, this is a
        certified lower bound on the unknown constant C_r of [I]. 0 where the bound is void.
        """
        return rank / self.term(eps)

    def certificates(self, attention: ArrayLike) -> tuple[Certificate, Certificate]:
        """The certificates of kappa(T) (kind ``factor-radius``) and tau(T) (kind ``tau``)."""
        a = _matrix(attention, "attention")
        gauge = column_gauge(np.log(a) - self.left @ self.right.T)
        witness = {"left": self.left, "right": self.right, "column_gauge": gauge}
        claim = {"rank": self.left.shape[1], "tau": self.tau * (1 + 1e-9) + 1e-12}
        return (
            factor_radius(self.left, self.right).certificate,
            Certificate("tau", claim, witness, {"attention": a}),
        )

    def __repr__(self) -> str:
        rank = self.left.shape[1]
        return f"Retained(rank {rank}, kappa {self.kappa:.4g}, tau {self.tau:.4g}, {self.origin})"


@dataclass(frozen=True, eq=False)
class Profile:
    """The result of ``profile``. Arrays have one entry per rank, for each eps if several were
    given.

    Attributes:
        eps: scalar or shape (E,). ranks: shape (R,). All below: shape (R,) or (E, R).
        kappa, tau: of the best retained interaction found.
        term: (1 + kappa/(eps - tau)^2)^(r/2); ``inf`` where no interaction of that rank was found
            with tau < eps, so that the bound is void. Where ``tau_floor`` >= eps there is none.
        native_kappa, native_tau, native_term: the same with native radii, for the best coordinate or
            principal subspace of q and k; ``nan`` without q and k.
        gain: native cost kappa/(eps - tau)^2 over the cost found; at least 1, ``inf`` where only the
            native bound is void, ``nan`` where both are.
        best_rank: the rank with the smallest term; 0 where all are void. Scalar or shape (E,).
        retained: the interactions behind the numbers, nested like the arrays.
    """

    eps: np.ndarray
    ranks: np.ndarray
    kappa: np.ndarray
    tau: np.ndarray
    term: np.ndarray
    native_kappa: np.ndarray
    native_tau: np.ndarray
    native_term: np.ndarray
    gain: np.ndarray
    best_rank: np.ndarray
    retained: tuple[Any, ...]

    def __repr__(self) -> str:
        lines = []
        for eps, terms, best in zip(
            np.atleast_1d(self.eps),
            np.atleast_2d(self.term),
            np.atleast_1d(self.best_rank),
            strict=True,
        ):
            said = f"best rank {best}, term {terms.min():.4g}" if best else "void: tau >= eps at every rank"
            lines.append(f"eps={eps:g}: {said}")
        return f"Profile({'; '.join(lines)}; estimates, upper)"


def profile(
    attention: ArrayLike,
    eps: float | Sequence[float],
    ranks: int | Sequence[int],
    *,
    native: tuple[ArrayLike, ArrayLike] | None = None,
    key: Array | int | None = None,
    steps: int = STEPS,
) -> Profile:
    """Minimise kappa(T) / (eps - tau(T))^2 over retained interactions T of each rank.

    [I] bounds r_eps(A) by min(N, C_r (1 + kappa/(eps - tau)^2)^(r/2)) for every T of rank r, with
    an unknown C_r. Starts are the truncated SVD of the intrinsic interaction, native subspaces,
    and random factors if a key is given; all ranks, eps and starts run as lanes of one program,
    which is compiled once per shape. The starts themselves stay candidates, so with ``native`` the
    result is never worse than the native choice of the same rank.

    Arguments:
        attention: shape (m, N), strictly positive rows that sum to 1 (within 1e-5).
        eps: l1 error, in (0, 2); a scalar or several.
        ranks: one or several ranks r, each from 1 to min(m, N) - 1.
        native: (q, k) of shapes (m, d), (N, d) with logits q k' up to row and column constants
            (put 1/sqrt(d) into q).
        key: PRNG key (or int) for random starts.
        steps: Adam steps of the search.

    Raises:
        ValueError: zeros in ``attention``, ranks or eps out of range, or q k' that is another
        head's.

    >>> logits = np.outer([1.0, 0.5, -1.0], [0.3, -0.2, 0.1, 0.0])
    >>> a = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    >>> found = profile(a, 0.5, [1, 2])
    >>> bool(found.tau[0] < 0.5), int(found.best_rank)
    (True, 1)
    """
    c = intrinsic(attention)
    rank_list, eps_list = _checked(c, eps, ranks)
    off = np.abs(np.asarray(attention, np.float64).sum(1) - 1).max()
    if off > ROW_SUM:
        raise ValueError(f"rows of attention must sum to 1, one is off by {off:.3g}: divide by the row sums.")
    if not isinstance(steps, int | np.integer) or steps < 1:
        raise ValueError(f"steps must be an integer >= 1, got {steps!r}; use {STEPS}.")
    starts = _starts(c, rank_list, native, key)
    natives = {r: _native_choices(c, r, native) for r in rank_list}
    with Console(stderr=True).status(f"profile: {len(rank_list) * len(eps_list)} cells"):
        found = _searched(c, rank_list, eps_list, starts, natives, steps)
    return _collect(c, np.asarray(eps, np.float64), rank_list, eps_list, found, natives)


def _checked(c: np.ndarray, eps: object, ranks: int | Sequence[int]) -> tuple[list[int], list[float]]:
    limit = min(c.shape) - 1
    given = np.atleast_1d(np.asarray(ranks))
    if given.dtype.kind not in "iu" or given.ndim > 1 or given.min(initial=1) < 1 or given.max() > limit:
        raise ValueError(f"ranks must be integers between 1 and min(m, N) - 1 = {limit}, got {ranks}.")
    rank_list = [int(r) for r in given]
    try:
        values = np.asarray(eps, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"eps must be in (0, 2), a scalar or a sequence, got {eps!r}.") from None
    if values.ndim > 1 or values.size == 0 or not ((values > 0) & (values < 2)).all():
        raise ValueError(f"eps must be in (0, 2), a scalar or a sequence, got {eps}.")
    return rank_list, [float(e) for e in np.atleast_1d(values)]


Factors = tuple[np.ndarray, np.ndarray]


def _starts(
    c: np.ndarray, ranks: list[int], native: tuple[ArrayLike, ArrayLike] | None, key: Array | int | None
) -> list[dict[int, tuple[str, Factors]]]:
    """For every kind of start, the factors at each rank."""
    u, s, vt = np.linalg.svd(c, full_matrices=False)
    svd = {r: ("svd", (u[:, :r] * np.sqrt(s[:r]), vt[:r].T * np.sqrt(s[:r]))) for r in ranks}
    starts = [svd]
    if native is not None:
        for choice in range(2):
            parts = {r: _subspaces(*_native_arrays(c, native), r)[choice] for r in ranks}
            starts.append({r: ("native", _at_width(*reduced(*pair), r)) for r, pair in parts.items()})
    if key is not None:
        size = np.sqrt(s[0] / np.sqrt(c.size))
        key = jax.random.key(key) if isinstance(key, int) else key
        draws = np.asarray(jax.random.normal(key, (sum(c.shape), max(ranks)))) * size
        random = {r: ("random", (draws[: len(c), :r], draws[len(c) :, :r])) for r in ranks}
        starts.append(random)
    return starts


def _native_arrays(c: np.ndarray, native: tuple[ArrayLike, ArrayLike]) -> Factors:
    q, k = _matrix(native[0], "q"), _matrix(native[1], "k")
    if q.shape[1] != k.shape[1] or (len(q), len(k)) != c.shape:
        raise ValueError(
            f"native q and k have shapes {q.shape}, {k.shape}; a matrix of shape {c.shape} needs "
            f"({c.shape[0]}, d) and ({c.shape[1]}, d)."
        )
    off = np.abs(double_centre(q @ k.T) - c).max()
    if off > SAME * max(1.0, np.abs(c).max()):
        raise ValueError(
            f"q k' differs from log A by {off:.3g} up to constants: pass this head's q and k, with "
            "the softmax scale multiplied into q."
        )
    return q, k


def _subspaces(q: np.ndarray, k: np.ndarray, rank: int) -> tuple[Factors, Factors]:
    """Coordinates with the largest contribution, and the principal subspace of q and k together."""
    width = min(rank, q.shape[1])
    weight = np.linalg.norm(q - q.mean(0), axis=0) * np.linalg.norm(k - k.mean(0), axis=0)
    kept = np.argsort(-weight)[:width]
    basis = np.linalg.eigh(np.atleast_2d(np.cov(q.T) + np.cov(k.T)))[1]
    axes = basis[:, ::-1][:, :width]
    return (q[:, kept], k[:, kept]), (q @ axes, k @ axes)


def _native_choices(c: np.ndarray, rank: int, native: tuple[ArrayLike, ArrayLike] | None) -> list[Retained]:
    if native is None:
        return []
    choices = []
    for q, k in _subspaces(*_native_arrays(c, native), rank):
        kappa = np.linalg.norm(q, axis=1).max() * np.linalg.norm(k, axis=1).max()
        left, right = (np.pad(part, ((0, 0), (0, rank - part.shape[1]))) for part in (q, k))
        cost = exact_tau(residual(c - q @ k.T))
        choices.append(Retained(left, right, float(kappa), cost, "native"))
    return choices


def _at_width(x: np.ndarray, y: np.ndarray, width: int) -> Factors:
    x, y = x[:, :width], y[:, :width]
    pad = ((0, 0), (0, width - x.shape[1]))
    return np.pad(x, pad), np.pad(y, pad)


def _searched(
    c: np.ndarray,
    ranks: list[int],
    eps: list[float],
    starts: list[dict[int, tuple[str, Factors]]],
    natives: dict[int, list[Retained]],
    steps: int,
) -> list[list[Retained]]:
    """The best candidate for each eps and rank."""
    cells = [(e, r, start[r]) for e in eps for r in ranks for start in starts]
    width = max(ranks)
    padded = [_at_width(*factors, width) for _, _, (_, factors) in cells]
    x = np.array([p[0] for p in padded])
    y = np.array([p[1] for p in padded])
    mask = np.array([np.arange(width) < r for _, r, _ in cells], float)
    errors = c[None] - x @ y.transpose(0, 2, 1)
    gauge = np.array([column_gauge(e) for e in errors])
    levels = np.array([e for e, _, _ in cells])
    moved_x, moved_y, _ = search(c, x, y, gauge, mask, levels, steps=steps)
    moved_x, moved_y = np.asarray(moved_x, np.float64), np.asarray(moved_y, np.float64)

    best: dict[tuple[float, int], Retained] = {}
    for lane, (e, r, (origin, factors)) in enumerate(cells):
        options = [_retained(c, *factors, origin)]
        left, right = moved_x[lane, :, :r], moved_y[lane, :, :r]
        if np.isfinite(left).all() and np.isfinite(right).all():
            options.append(_retained(c, left, right, f"{origin}, searched"))
        options += natives[r]
        if (e, r) in best:
            options.append(best[e, r])
        best[e, r] = min(options, key=lambda o, e=e: (o.cost(e), o.tau))
    refined = _refine(list(best.values()))
    table = dict(zip(best, refined, strict=True))
    return [[table[e, r] for r in ranks] for e in eps]


def _retained(c: np.ndarray, x: np.ndarray, y: np.ndarray, origin: str) -> Retained:
    kappa = np.sqrt((x**2).sum(1).max() * (y**2).sum(1).max())
    return Retained(x, y, float(kappa), exact_tau(residual(c - x @ y.T)), origin)


def _refine(items: list[Retained]) -> list[Retained]:
    """Replace each radius product by the factor radius, if that is smaller."""
    designs = solve_designs([reduced(item.left, item.right) for item in items], KAPPA_TOLERANCE)
    return [
        replace(item, kappa=min(item.kappa, design.upper))
        for item, design in zip(items, designs, strict=True)
    ]


def _collect(
    c: np.ndarray,
    eps: np.ndarray,
    ranks: list[int],
    eps_list: list[float],
    found: list[list[Retained]],
    natives: dict[int, list[Retained]],
) -> Profile:
    shape = (*eps.shape, len(ranks))

    def table(values: list) -> np.ndarray:
        return np.array(values, np.float64).reshape(shape)

    void = Retained(np.zeros((1, 1)), np.zeros((1, 1)), np.nan, np.nan, "none")
    chosen = [
        [min(natives[r], key=lambda n, e=e: (n.cost(e), n.tau), default=void) for r in ranks]
        for e in eps_list
    ]
    pairs = [
        (item, choice, e)
        for e, row, native_row in zip(eps_list, found, chosen, strict=True)
        for item, choice in zip(row, native_row, strict=True)
    ]
    term = table([item.term(e) for item, _, e in pairs])
    best = np.where(np.isfinite(term.min(-1)), np.array(ranks)[term.argmin(-1)], 0)
    return Profile(
        eps=eps,
        ranks=np.array(ranks),
        kappa=table([item.kappa for item, _, _ in pairs]),
        tau=table([item.tau for item, _, _ in pairs]),
        term=term,
        native_kappa=table([choice.kappa for _, choice, _ in pairs]),
        native_tau=table([choice.tau for _, choice, _ in pairs]),
        native_term=table([_native_term(choice, e) for _, choice, e in pairs]),
        gain=table([_gain(item, choice, e) for item, choice, e in pairs]),
        best_rank=best,
        retained=tuple(tuple(row) for row in found) if eps.ndim else tuple(found[0]),
    )


def _native_term(choice: Retained, eps: float) -> float:
    return float("nan") if choice.origin == "none" else choice.term(eps)


def _gain(item: Retained, choice: Retained, eps: float) -> float:
    ours, theirs = item.cost(eps), choice.cost(eps)
    if choice.origin == "none" or np.isinf(ours):
        return float("nan")
    return theirs / ours if ours > 0 else float("inf")
