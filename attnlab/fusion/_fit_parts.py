"""Help for a fit from smaller problems: heads fused in fewer dimensions, and points that samples missed."""

from collections.abc import Callable
from functools import partial

import numpy as np

from ..certify import _sup_error as bounds
from ._box import Box
from ._fit_starts import product_of
from ._function import Function, head_values, worst_points
from ._polish import Atoms, Samples, polish

MOST_DIMS = 4  # above, a smaller problem is hardly cheaper than the one at hand
ROUNDS = 4  # of adding missed points
MISSED = 2e-4  # relative excess over the samples that is worth another round
BUDGETS = {1: 20_000, 2: 20_000, 3: 20_000, 4: 100_000}  # boxes per round; above dimension 4 samples must do
ORDER, WIDEST = 4, 4  # of the enclosures; most value coordinates that are searched

Part = list[Atoms]


def composed(function: Function, m: int, fit_part: Callable[[Part, int, Box], Atoms]) -> list[Atoms]:
    """Starts with m atoms: one head as it is, times a fit of the others in the coordinates they depend on.

    The error of such a product is that of the fit, so m atoms never do worse than m / n do for a sum
    without a head of n atoms.

    Arguments:
        fit_part: fits a sum of heads with a number of atoms on a box of fewer dimensions.
    """
    heads, found, seen = function.heads or [], [], set()
    if function.box.dim > MOST_DIMS:
        return []
    for i, head in enumerate(heads):
        rest, n = heads[:i] + heads[i + 1 :], len(head[2])
        active = np.flatnonzero(np.sum([np.ptp(k, axis=0) for k, _, _ in rest], axis=0))
        largest = np.prod([len(b) for _, _, b in rest])
        if n < 2 or m % n or not 2 <= m // n < largest or not 0 < len(active) < function.box.dim:
            continue
        part = [(k[:, active], v, b) for k, v, b in rest]
        name = tuple(x.tobytes() for h in part for x in h)
        if name in seen:  # the same problem in other coordinates
            continue
        seen.add(name)
        k, v, b = fit_part(part, m // n, Box(function.box.radius, len(active)))
        wide = np.zeros((len(k), function.box.dim))
        wide[:, active] = k
        found.append(product_of(head, (wide, v, b)))
    return found


def closed_gaps(head: Atoms, error: float, samples: Samples) -> tuple[Atoms, float, Samples]:
    """Polish again on points that the samples missed, as long as there are any.

    Branch and bound looks for them where the target is a sum of heads; the error returned is then
    within ``MISSED`` of the supremum on the box (unless the rounds or a budget ran out).
    """
    for _ in range(ROUNDS):
        point = missed_point(head, error, samples)
        if point is None:
            break
        size = partial(_size, head, samples)
        more = np.concatenate([point[None], worst_points(size, samples.target.box, point[None])])
        samples = samples.extended(more)
        head, error = polish(head, samples, steps=15)
    return head, error, samples


def _size(head: Atoms, samples: Samples, q: np.ndarray) -> np.ndarray:
    return np.abs(head_values(*head, q) - samples.target(q)).max(1)


def missed_point(head: Atoms, error: float, samples: Samples) -> np.ndarray | None:
    """A point of the box where the head is further off than at the samples, if one is found."""
    box, width = samples.target.box, head[1].shape[1]
    if samples.target.heads is None or not samples.exchange or box.dim not in BUDGETS or width > WIDEST:
        return None
    mine, theirs = bounds.Atoms(*head), [bounds.Atoms(*h) for h in samples.target.heads]
    goal = lambda low: max(low, error) * (1 + MISSED) + 1e-9
    for coordinate in range(width):
        difference = bounds.Difference(mine, theirs, coordinate, ORDER)
        done = bounds.sweep(difference, np.full(box.dim, box.radius), goal, error, BUDGETS[box.dim])
        if done.largest > error * (1 + MISSED) + 1e-9:
            return done.point
    return None
