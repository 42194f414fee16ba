"""Certified largest distance between a head and a sum of heads on a box."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ..certify import Certificate
from ..certify._sup_error import Difference, decode, sweep
from ..heads import Head
from ._box import Box
from ._function import Function, Target, flat_subject, largest_rows, worst_points

FLOORS = {4: 1e-4, 5: 1e-3}  # absolute gap that is good enough, unless tol is smaller; else 1e-6
ORDERS = {1: 8, 2: 6, 3: 5, 4: 4, 5: 4, 6: 3}
NEAR_EXACT_ORDERS = {1: 14, 2: 12, 3: 10, 4: 8, 5: 6}
BUDGETS = {1: 200_000, 2: 1_000_000, 3: 2_000_000, 4: 400_000, 5: 200_000}
NEAR_EXACT = 1e-3


@dataclass(frozen=True)
class Interval:
    """``lo <= sup over the box of |F - W| <= hi``, the largest coordinate for vector values.

    Attributes:
        lo: proved lower end (a sampled value when not ``certified``).
        hi: proved upper end (``inf`` when not ``certified``: samples prove nothing about a box).
        point: (d,) where the difference reaches ``lo``.
        estimate: largest difference that sampling and ascent found; proves nothing about ``hi``.
        certified: whether both ends were proved; ``certificate`` then holds the proof.
        boxes: boxes enclosed by the branch and bound.
        seconds: time used.
    """

    lo: float
    hi: float
    point: np.ndarray = field(repr=False)
    estimate: float
    certified: bool
    certificate: Certificate | None = field(repr=False)
    boxes: int = field(repr=False)
    seconds: float = field(repr=False)

    @property
    def relative_gap(self) -> float:
        """``hi / lo - 1``."""
        return self.hi / self.lo - 1 if self.lo > 0 else math.inf

    def __repr__(self) -> str:
        if not self.certified:
            return f"Interval(estimate {self.estimate:.6g} from samples, nothing proved)"
        return f"Interval([{self.lo:.9g}, {self.hi:.9g}], certified)"


def sup_error(
    target: Target, head: Head, box: Box, tol: float = 0.01, *, budget: int | None = None, seed: int = 0
) -> Interval:
    """Enclose ``sup over the box of |head(q) - target(q)|`` by branch and bound, without sampling.

    Boxes are settled by an interval softmax and by Taylor polynomials of the difference with an
    analytic remainder, all rounded outward (``attnlab.certify``). The search stops once
    ``hi - lo <= max(tol * lo, min(tol, 1e-6))`` (1e-4 in dimension 4, 1e-3 in 5), or at the budget: the
    interval is then wider, and still proved. Seconds up to dimension 4, best effort in 5, loose above.

    Arguments:
        target: a ``Head`` or ``HeadSum``; a callable ``(d,) -> ()`` or ``(p,)`` gives only a sampled
            estimate, labelled so.
        head: the head to judge; same dimension and value shape.
        box: a finite box.
        tol: wanted gap, relative to ``lo``; positive.
        budget: most boxes to look at, for each coordinate of the values.
        seed: of the samples that look for the largest difference.

    Raises:
        ValueError: tol or budget not positive, an infinite box, dimensions or value shapes that differ,
            or a target with NaN values.

    >>> from attnlab.heads import product_head, sigmoid_sum
    >>> w = sigmoid_sum(2)
    >>> sup_error(w, product_head(w), Box(4, 2)).hi < 1e-6
    True
    """
    start = time.perf_counter()
    if not (isinstance(tol, int | float | np.number) and 0 < tol < math.inf):
        raise ValueError(f"tol must be a positive number, got {tol!r}.")
    if budget is not None and budget < 1:
        raise ValueError(f"budget must be at least 1, got {budget!r}.")
    wanted, given = Function(target, box), Function(head, box, "head")
    if given.heads is None or not isinstance(head, Head):
        raise ValueError("head must be a Head.")
    if not box.finite:
        raise ValueError("box has infinite radius; a sup-error is certified on finite boxes only.")
    if (wanted.width, wanted.scalar) != (given.width, given.scalar):
        raise ValueError(f"head has values of shape {head.value_shape}; those of target differ.")
    point, estimate = sampled_worst(wanted, given, seed)
    if wanted.heads is None:
        return Interval(estimate, math.inf, point, estimate, False, None, 0, time.perf_counter() - start)
    subject = flat_subject(given.heads, "head_") | flat_subject(wanted.heads, "target_")
    subject["target_sizes"] = np.array([len(h[2]) for h in wanted.heads])
    subject["radius"] = np.full(box.dim, box.radius)
    order = (NEAR_EXACT_ORDERS if estimate < NEAR_EXACT else ORDERS).get(box.dim, ORDERS.get(box.dim, 1))
    low, high, best, boxes = _bracket(
        subject, order, point, float(tol), budget or BUDGETS.get(box.dim, 2_000)
    )
    certificate = Certificate(
        "sup-error", {"lower": low, "upper": high}, {"order": np.array(order), "point": best}, subject
    )
    return Interval(
        low, high, best, max(estimate, low), True, certificate, boxes, time.perf_counter() - start
    )


def _bracket(
    subject: dict[str, np.ndarray], order: int, point: np.ndarray, tol: float, budget: int
) -> tuple[float, float, np.ndarray, int]:
    """Lower end, upper end, where the lower end is reached, boxes used."""
    head, target, radius = decode(subject)
    coordinates = [Difference(head, target, c, order) for c in range(head.values.shape[1])]
    low, high, boxes = 0.0, 0.0, 0
    for f in coordinates:
        below, above = f.at(point)
        low = max(low, below, -above)
    floor = min(tol, FLOORS.get(len(radius), 1e-6)) / 2
    goal = lambda lo: max(lo * (1 + 0.98 * tol), lo + floor)
    with _progress() as show:
        for f in coordinates:
            done = sweep(f, radius, goal, low, budget, show)
            if done.largest > low:
                low, point = done.largest, done.point
            high, boxes = max(high, done.upper), boxes + done.boxes
    # The checker recomputes the value at the point, so claim no more than that.
    low = max(max(b, -a) for b, a in (f.at(point) for f in coordinates))
    low = max(0.0, math.nextafter(low, -math.inf))
    # Boxes were settled below goals that grew with the lower end; the checker settles all below ``high``.
    return low, math.nextafter(max(high, low), math.inf), point, boxes


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """Box counts on a terminal, from the second second on; nothing elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("sup-error"), SpinnerColumn(), TextColumn("{task.description}"))
    begin = time.perf_counter()
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("", total=None, visible=False)

        def show(used: int, waiting: int) -> None:
            if time.perf_counter() - begin > 2:
                bar.update(task, visible=True, description=f"{used:,} boxes done, {waiting:,} waiting")

        yield show


def sampled_worst(target: Function, head: Any, seed: int = 0) -> tuple[np.ndarray, float]:
    """The point of largest difference among grid and random samples after ascent, and its value."""
    box = target.box
    rng = np.random.default_rng(seed)
    per_axis = {1: 2001, 2: 65, 3: 21, 4: 9, 5: 5}.get(box.dim, 2)
    points = [rng.uniform(-box.radius, box.radius, (4096, box.dim))]
    if box.dim <= 12:
        points.append(box.grid(per_axis))
    samples = np.concatenate(points)
    size = lambda q: np.abs(head(q) - target(q)).max(1)
    values = size(samples)
    ends = worst_points(size, box, samples[largest_rows(values, 32)])
    final = size(ends)
    return ends[final.argmax()], float(final.max())
