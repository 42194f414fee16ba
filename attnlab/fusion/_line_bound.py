"""Lower bounds on atoms that hold on finite boxes: levels crossed along parallel lines.

On a line a head with m atoms minus a constant is an exponential sum of m terms, which changes sign at
most m - 1 times. So if the target alternates around a level at K points of a line inside the box, by
more than eps, every head within eps has at least K atoms. If on a parallel line it alternates at K points
starting with the other sign, K atoms are not enough either: their values, in the order of their keys along
the line, would alternate around one level in one order and around another level in the opposite order.

For two sigmoids this gives 4 = 2^d on any box, for every eps below a threshold which fits with three
atoms reach; for d sigmoids d + 1, or d + 2 for even d.
"""

from dataclasses import dataclass

import numpy as np

from ..certify import Certificate
from ._box import Box
from ._function import Function, flat_subject

STEPS, LEVELS = 33, 15
LINES, ROUNDS, KEPT, CHILDREN = 1200, 24, 20, 12


@dataclass(frozen=True, eq=False)
class Lines:
    """One line, or two parallel ones with opposite signs: origins (L, d), one direction, times (L, K),
    levels (L,). ``swing`` is the least distance from the level over all points."""

    swing: float
    origins: np.ndarray
    direction: np.ndarray
    times: np.ndarray
    levels: np.ndarray
    coordinate: int

    @property
    def atoms(self) -> int:
        """How many atoms any head within less than ``swing`` has at least."""
        count, points = self.times.shape
        return points + (count == 2)


def line_certificate(target: Function, eps: float, box: Box, seed: int = 0) -> Certificate | None:
    """The best verified certificate that more than one atom is needed within ``eps``, if one is found.

    Arguments:
        target: a sum of heads; callables and infinite boxes give ``None``.
        eps: the tolerance; box: a finite box.
    """
    if target.heads is None or not box.finite:
        return None
    subject = flat_subject(target.heads, "target_")
    subject["target_sizes"] = np.array([len(h[2]) for h in target.heads])
    subject["radius"] = np.full(box.dim, box.radius)
    best = None
    for points in range(2, sum(len(h[2]) for h in target.heads) + 1):
        found = False
        for pair in (False, True):
            lines = best_lines(target, points, box, pair, seed)
            certificate = Certificate(
                "atoms-lower-line",
                {"atoms": lines.atoms, "eps": eps},
                {
                    "origins": lines.origins,
                    "direction": lines.direction,
                    "times": lines.times,
                    "levels": lines.levels,
                    "coordinate": np.array(lines.coordinate),
                },
                subject,
            )
            if certificate.verify():
                best, found = certificate, True
            else:
                break  # a pair contains a single line
        if not found:
            break
    return best


def best_lines(target: Function, points: int, box: Box, pair: bool, seed: int = 0) -> Lines:
    """Random lines through the box (and their mirror images), the best of them varied."""
    rng = np.random.default_rng(seed)
    radius, d = box.radius * (1 - 1e-9), box.dim
    ends = rng.uniform(-radius, radius, (LINES, 2, d))
    ends = np.where(rng.random(ends.shape) < 0.3, radius * np.sign(ends), ends)
    first, move = ends[:, 0], ends[:, 1] - ends[:, 0]
    lines = np.stack([first, -first - move, move], 1)  # two origins and a direction
    best = _swings(target, lines, points, pair)
    for round_ in range(ROUNDS):
        order = np.argsort(-best)[:KEPT]
        step = radius * 0.4 * 0.75**round_
        children = np.repeat(lines[order], CHILDREN, 0)
        noise = step * rng.normal(size=children.shape) * (rng.random(children.shape) < 0.5)
        children = np.concatenate([lines[order], children + noise])
        start = np.clip(children[:, :2], -radius, radius)
        end = np.clip(start + children[:, 2:], -radius, radius)
        # Both lines keep one direction: shorten it to what fits for both.
        travel = end - start
        shorter = np.abs(travel).argmin(1)
        rows, columns = np.indices((len(children), d))
        lines = np.concatenate([start, travel[rows, shorter, columns][:, None]], 1)
        best = _swings(target, lines, points, pair)
    return _witness(target, lines[best.argmax()], points, pair)


def _swings(target: Function, lines: np.ndarray, points: int, pair: bool) -> np.ndarray:
    """(n,) best swing of each candidate over levels and coordinates."""
    count = len(lines)
    t = np.linspace(0, 1, STEPS)[:, None]
    sides = []
    for line in range(1 + pair):
        q = lines[:, None, line] + t * lines[:, None, 2]
        values = target(q.reshape(-1, target.box.dim)).reshape(count, STEPS, target.width)
        sides.append(_best_levels(values, points)[0])
    if not pair:
        return sides[0].max((0, 2))
    first, second = sides
    return np.maximum(np.minimum(first[0], second[1]), np.minimum(first[1], second[0])).max(1)


def _best_levels(values: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Per sign of the first point (2,), line and coordinate: the largest swing and its level."""
    low, high = values.min(1), values.max(1)
    best = np.full((2, *low.shape), -np.inf)
    level = np.zeros_like(best)
    for share in np.linspace(0, 1, LEVELS + 2)[1:-1]:
        middle = low + share * (high - low)
        swing = _alternations(values - middle[:, None], points)
        level = np.where(swing > best, middle, level)
        best = np.maximum(best, swing)
    return best, level


def _alternations(values: np.ndarray, points: int) -> np.ndarray:
    """(2, ...) over alternating subsequences of ``points`` entries along axis 1: the largest least
    absolute value, for a first entry above (0) and below (1) zero."""
    state = np.full((2, points, len(values), values.shape[2]), -np.inf)  # sign of the last entry, length
    for t in range(values.shape[1]):
        before = state.copy()
        for s, signed in enumerate((values[:, t], -values[:, t])):
            state[s, 0] = np.maximum(before[s, 0], signed)
            state[s, 1:] = np.maximum(before[s, 1:], np.minimum(before[1 - s, :-1], signed))
    last = state[:, -1]
    return last if points % 2 else last[::-1]


def _witness(target: Function, lines: np.ndarray, points: int, pair: bool) -> Lines:
    """Levels and points on a fine subdivision of the lines found."""
    t = np.linspace(0, 1, 16 * STEPS)
    values = [target(lines[i] + t[:, None] * lines[2]) for i in range(1 + pair)]
    tables = [_best_levels(v[None], points) for v in values]
    swings = np.stack([best[:, 0] for best, _ in tables])  # (lines, sign, coordinate)
    both = np.minimum(swings[0], swings[-1][::-1] if pair else swings[0])
    sign, coordinate = np.unravel_index(both.argmax(), both.shape)
    times, levels, swing = [], [], np.inf
    for i, v in enumerate(values):
        s = int(sign) if i == 0 else 1 - int(sign)
        middle = float(tables[i][1][s, 0, coordinate])
        picked = _subsequence(v[:, coordinate] - middle, points, s)
        level = 0.5 * _gap_middle(v[picked, coordinate], s)
        swing = min(swing, float(np.abs(v[picked, coordinate] - level).min()))
        times.append(t[picked])
        levels.append(level)
    return Lines(swing, lines[: 1 + pair], lines[2], np.array(times), np.array(levels), int(coordinate))


def _gap_middle(values: np.ndarray, sign: int) -> float:
    """Least value above plus largest value below the level."""
    above = values[sign::2]
    below = values[1 - sign :: 2]
    return float(above.min() + below.max())


def _subsequence(values: np.ndarray, points: int, sign: int) -> np.ndarray:
    """Indices of the best alternating subsequence whose first entry is above (0) or below (1) zero."""
    n = len(values)
    score = np.full((points, n), -np.inf)
    back = np.zeros((points, n), int)
    for k in range(points):
        signed = values if (k + sign) % 2 == 0 else -values
        if k == 0:
            score[0] = signed
            continue
        so_far = np.maximum.accumulate(score[k - 1])
        where = np.maximum.accumulate(np.where(score[k - 1] >= so_far, np.arange(n), 0))
        score[k, 1:] = np.minimum(so_far[:-1], signed[1:])
        back[k, 1:] = where[:-1]
    picked = [int(score[-1].argmax())]
    for k in range(points - 1, 0, -1):
        picked.append(int(back[k, picked[-1]]))
    return np.array(picked[::-1])
