"""One-dimensional interactions, where the error profile is known exactly.

If log A is q_i k_j up to row and column constants, then sorted by q and k the matrix is totally
positive and a_{K+1} = min ||A h||_inf over cell averages h of +-1 functions with K sign changes
(Micchelli-Pinkus; Pinkus, "n-Widths in Approximation Theory", 1985). The minimiser equioscillates on
K+1 rows, which is the lower certificate; the optimal B interpolates A in the columns that hold a
sign change and in mixtures of neighbouring rows at the sign changes of A h.

The minimisers for K and K+1 knots interlace, so the knots are found one rank after the other.
"""

from dataclasses import dataclass, field

import numpy as np

from ._knots import (
    alternating,
    averages,
    descend,
    equioscillates,
    least_oscillation,
    most_alternation,
    oscillation,
)

FLAT = 1e-8  # relative size of the second singular value of a one-dimensional interaction
EASY = (8.0, 4.0, 2.0)  # logit range per knot at which quantiles of the column mass are a good start
FLOOR = 1e-5  # errors below this are left to the generic searches
GROWTH = 1.25  # factor of the interaction from one step of the continuation to the next


@dataclass(frozen=True, eq=False)
class Line:
    """A one-dimensional interaction: A = softmax(q_i k_j + b_j) up to rounding."""

    matrix: np.ndarray
    q: np.ndarray
    k: np.ndarray
    b: np.ndarray
    known: list[np.ndarray] = field(default_factory=lambda: [np.empty(0)])  # the knots for 0, 1, ... knots

    def solve(self, rank: int) -> tuple[dict[str, np.ndarray] | None, dict[str, np.ndarray] | None]:
        """Witnesses of kinds ``rank-lower-1d`` and ``rank-upper`` for this rank (1 <= rank < min(m, N)).

        Both are ``None`` once the error has fallen below ``FLOOR``, the second also when the interpolation
        conditions degenerate.
        """
        rows, columns = np.argsort(self.q, kind="stable"), np.argsort(self.k, kind="stable")
        a, cells = self.matrix[np.ix_(rows, columns)], len(columns)
        while len(self.known) <= rank and oscillation(a, self.known[-1]) > FLOOR:
            knots = _one_more(a, self.known[-1])
            if not equioscillates(a @ averages(knots, cells), len(knots)):
                # A matrix that nearly splits into blocks has many minimisers; this one alternates more often.
                other = _continue(a, self.q[rows], self.k[columns], self.b[columns], len(knots))
                knots = min(other, knots, key=lambda x: round(oscillation(a, x), 9))
            self.known.append(knots)
        if len(self.known) <= rank:
            return None, None
        least = self.known[rank]
        candidates = [least]
        if not equioscillates(a @ averages(least, cells), rank):
            candidates.append(most_alternation(a, [least, *_quantiles(a, rank)]))
        most = candidates[-1]
        h = np.empty(cells)
        h[columns] = averages(most, cells)
        alternation = alternating(a @ averages(most, cells), rank)[1]
        lower = {"q": self.q, "k": self.k, "b": self.b, "h": h, "rows": rows[alternation]}
        factors = [_interpolant(a, x, a @ averages(x, cells), rank) for x in candidates]
        usable = [f for f in factors if f is not None]
        if not usable:
            return lower, None
        u, w = min(usable, key=lambda f: np.abs(a - f[0] @ f[1]).sum(1).max())
        left, right = np.empty_like(u), np.empty_like(w)
        left[rows], right[:, columns] = u, w
        return lower, {"U": left, "W": right}


def line(matrix: np.ndarray) -> Line | None:
    """The one-dimensional interaction behind a positive matrix, or ``None`` if there is none."""
    if (matrix <= 0).any():
        return None
    log = np.log(matrix)
    centred = log - log.mean(1, keepdims=True)
    centred = centred - centred.mean(0)
    u, s, vt = np.linalg.svd(centred, full_matrices=False)
    if len(s) < 2 or s[0] <= 1e-9 or s[1] > FLAT * s[0]:
        return None
    q, k = u[:, 0] * np.sqrt(s[0]), vt[0] * np.sqrt(s[0])
    rest = log - np.outer(q, k)
    return Line(matrix, q, k, (rest - rest.mean(1, keepdims=True)).mean(0))


def _one_more(a: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """The knots of least oscillation for one more knot.

    First start: the same density of knots, with one more of them. Then a new knot in the middle of every
    gap, and single knots put elsewhere.
    """
    cells, count = a.shape[1], len(knots)
    edges = np.concatenate([[0.0], knots, [float(cells)]])
    stretched = np.interp(np.arange(1, count + 2) / (count + 2), np.arange(count + 2) / (count + 1), edges)
    gaps = [np.sort(np.append(knots, middle)) for middle in (edges[:-1] + edges[1:]) / 2]
    found = []
    for start in (stretched, *sorted(gaps, key=lambda x: oscillation(a, x))):
        found.append(descend(a, start))
        if equioscillates(a @ averages(found[-1], cells), count + 1):
            return found[-1]
    return least_oscillation(a, min(found, key=lambda x: oscillation(a, x)))


def _continue(a, q, k, b, rank: int) -> np.ndarray:
    """The knots of least oscillation, followed from a weak interaction t q_i k_j to the full one.

    A strong interaction nearly splits into blocks and has plateaus where knots are lost; a weak one has
    not, and its minimiser moves continuously with t. Steps shrink when the next minimiser is missed.
    """
    cells = a.shape[1]
    reach = float((q.max() - q.min()) * (k.max() - k.min()))
    t, growth, knots = 1.0, GROWTH, np.empty(0)
    for easy in EASY:
        t = min(1.0, easy * rank / reach)
        weak = _softmax(t * np.outer(q, k) + b)
        knots = min(
            (descend(weak, start) for start in _quantiles(weak, rank)), key=lambda x: oscillation(weak, x)
        )
        if equioscillates(weak @ averages(knots, cells), rank):
            break
        knots = least_oscillation(weak, knots)
        if equioscillates(weak @ averages(knots, cells), rank):
            break
    while t < 1 and growth > 1.003:
        following = min(1.0, t * growth)
        next_matrix = _softmax(following * np.outer(q, k) + b)
        moved = descend(next_matrix, knots)
        if equioscillates(next_matrix @ averages(moved, cells), rank):
            t, knots, growth = following, moved, min(GROWTH, growth**1.5)
        else:
            growth = growth**0.5
    return least_oscillation(a, knots)


def _softmax(logits: np.ndarray) -> np.ndarray:
    raw = np.exp(logits - logits.max(1, keepdims=True))
    return raw / raw.sum(1, keepdims=True)


def _quantiles(a: np.ndarray, rank: int) -> list[np.ndarray]:
    """Knots at Chebyshev and at even quantiles of the column mass."""
    spread = np.concatenate([[0.0], np.cumsum(a.max(0))]) / a.max(0).sum()
    even = (np.arange(rank) + 1) / (rank + 1)
    grid = np.arange(a.shape[1] + 1.0)
    return [np.interp(x, spread, grid) for x in ((1 - np.cos(np.pi * even)) / 2, even)]


def _interpolant(a, knots, image, rank):
    """U, W that reproduce A in the knots' columns and in row mixtures where ``image`` changes sign."""
    m, cells = a.shape
    columns = np.unique(np.minimum(knots.astype(int), cells - 1))
    changes = np.flatnonzero(np.diff(image >= 0))
    if len(columns) != rank or len(changes) < rank:
        return None
    if len(changes) > rank:  # spurious changes of sign come from the smallest values
        size = np.minimum(np.abs(image[changes]), np.abs(image[changes + 1]))
        changes = np.sort(changes[np.argsort(-size)[:rank]])
    mix = np.zeros((rank, m))
    for t, i in enumerate(changes):
        share = image[i + 1] / (image[i + 1] - image[i])
        mix[t, i], mix[t, i + 1] = share, 1 - share
    core = mix @ a[:, columns]
    try:
        return a[:, columns] @ np.linalg.inv(core), mix @ a
    except np.linalg.LinAlgError:
        return None
