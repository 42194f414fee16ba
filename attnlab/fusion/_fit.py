"""Fitting one head of m atoms to a sum of heads, or to any function, on a box."""

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import track

from .._clock import Clock
from ..heads import Head, HeadSum
from ._box import Box
from ._fit_parts import closed_gaps, composed
from ._fit_search import LaneCode, search
from ._fit_starts import make_starts, paired_keys, product_atoms
from ._function import Function, Target, head_arrays, head_values, softmax
from ._polish import Atoms, Samples, fine_samples, polish

NODES = {1: 129, 2: 25, 3: 11, 4: 6, 5: 4}  # Chebyshev nodes per axis in the search
SCREEN_STEPS, REFINE_STEPS = 60, 300
SHORT, SHORT_ACTIVE = 10, 128  # steps and points of the polish that decides which lanes go on
REFINED, POLISHED = 10, 2  # lanes per count that go on to the next stage
ALIKE = 1e-3  # relative difference of errors below which two refined lanes are taken as one
PART_STARTS = 8
FLATTENINGS, FLATTEN_ROUNDS = (0.5, 0.2, 0.05), 3


class Fit(eqx.Module):
    """The best head found with at most ``num_atoms`` atoms. Its error is an estimate: samples and
    ascent look for the largest difference, and only ``sup_error`` proves a bound.

    Attributes:
        head: the head, in JAX's default precision.
        sup_error_estimate: largest difference found on the box (or on the given points).
        num_atoms: how many atoms were allowed (the plain product may need fewer).
        lane_errors: (starts,) error of every start at the search points, ``nan`` where it diverged.
        lane_codes: (starts,) ``LaneCode`` of every start.
        polished: errors of the lanes that were polished, best first.
        seconds: time of the whole call that made this fit, up to this fit.
        compile_seconds: how many of them went to compilation.
    """

    head: Head
    sup_error_estimate: float
    num_atoms: int = eqx.field(static=True)
    lane_errors: np.ndarray
    lane_codes: np.ndarray
    polished: tuple[float, ...]
    seconds: float
    compile_seconds: float

    @property
    def diverged(self) -> int:
        """Number of starts that met a non-finite number."""
        return int((self.lane_codes == LaneCode.DIVERGED).sum())

    def __repr__(self) -> str:
        lost = f", {self.diverged} starts diverged" if self.diverged else ""
        return (
            f"Fit({self.num_atoms} atoms, sup-error about {self.sup_error_estimate:.6g} "
            f"(estimate, {len(self.lane_errors)} starts{lost}))"
        )


def fit(
    target: Target,
    num_atoms: int,
    box: Box,
    *,
    key: Any = None,
    starts: int = 64,
    points: Any = None,
) -> Fit:
    """Fit a head of ``num_atoms`` atoms in the uniform norm.

    Many starts run as masked lanes of one compiled program (Levenberg-Marquardt on p-norms, values
    in closed form at the start); the best are polished on the host in float64 by sequential linear
    programs with exchange of worst points. Where the best error is only approached as keys merge and
    values grow, the result is a point on the way.

    Arguments:
        target: a ``Head``, ``HeadSum``, or a callable of ``jax.numpy`` from (d,) to a number or (p,).
        num_atoms: at least 1.
        box: finite; its ``dim`` is that of the queries.
        key: PRNG key or int, for the starts.
        starts: number of starts.
        points: (n, d) queries that replace the box as the set to fit on; nothing is said elsewhere.

    Raises:
        ValueError: an argument out of range, a target that returns NaN or a wrong shape, a box of
            another dimension or infinite, or fewer values at ``points`` than parameters.

    >>> from attnlab.heads import sigmoid_sum
    >>> fit(sigmoid_sum(1), 2, Box(4, 1), key=0, starts=8).sup_error_estimate < 1e-6
    True
    """
    return fit_many(target, [num_atoms], box, key=key, starts=starts, points=points)[0]


def fit_many(
    target: Target,
    counts: Sequence[int],
    box: Box,
    *,
    key: Any = None,
    starts: int = 64,
    points: Any = None,
    polished: int = POLISHED,
    warm: Sequence[Fit] = (),
) -> list[Fit]:
    """``fit`` for several numbers of atoms at once: all starts of all counts are lanes of one program.

    Arguments:
        counts: numbers of atoms.
        polished: lanes per count that are polished.
        warm: earlier fits of the same target; each is split or merged by one atom into starts.

    >>> from attnlab.heads import sigmoid_sum
    >>> [f.num_atoms for f in fit_many(sigmoid_sum(1), [1, 2], Box(4, 1), key=0, starts=8)]
    [1, 2]
    """
    clock = Clock()
    counts = [check_count("num_atoms", m) for m in counts]
    if not counts:
        raise ValueError("counts is empty; give at least one number of atoms.")
    starts, polished = check_count("starts", starts), check_count("polished", polished)
    function = Function(target, box)
    if not box.finite and points is None:
        raise ValueError("box has infinite radius; fit on a finite box.")
    coarse, fine = _sample_sets(function, box, points)
    _enough(coarse, max(counts), points is not None)
    rng = np.random.default_rng(seed_of(key))
    exact = product_atoms(function)
    hard = [m for m in counts if exact is None or len(exact[2]) > m]
    lanes = _Searched(function, box, hard, starts, coarse, fine, rng) if hard else None
    console, fits = Console(stderr=True), []
    # On anything but a terminal rich would leave blank lines.
    shown = track(counts, "fit", console=console, transient=True) if console.is_terminal else counts
    for m in shown:
        error, code = np.zeros(0), np.zeros(0, int)
        if lanes is None or m not in hard:
            begins = [exact] if exact else []
        else:
            error, code = lanes.outcome(m)
            begins = _shortlist(lanes.refined(m), polished, fine)
            paired = [least_squares_values(*start, fine) for start in paired_keys(function, m)]
            begins += sorted(paired, key=fine.error)[:1]
            if points is None:
                begins += composed(function, m, _fit_part)
            for old in (*warm, *fits[-1:]):
                begins += _neighbours(old, m, fine, rng)
        done = [polish(h, fine) for h in begins]
        # A head with fewer atoms is one with at most m.
        done += [(head_arrays(f.head), f.sup_error_estimate) for f in fits if f.num_atoms < m]
        done.sort(key=lambda x: x[1])
        if not done:
            raise ValueError("Every start diverged; check the target's size on the box, or scale it.")
        atoms, reached, fine = closed_gaps(*_flattened(*done[0], fine), fine)
        head, reached = _as_head(atoms, reached, function, fine)
        ends = tuple(e for _, e in done)
        fits.append(Fit(head, reached, m, error, code, ends, clock.seconds, clock.compile_seconds))
    return fits


class _Searched:
    """The lanes of all counts after screening all starts and refining the best of each count."""

    def __init__(
        self,
        function: Function,
        box: Box,
        counts: list[int],
        starts: int,
        samples: Samples,
        fine: Samples,
        rng: np.random.Generator,
    ):
        width = 4 * math.ceil(max(counts) / 4)  # multiples of 4 share a compilation
        lanes, self.counts = make_starts(function, box, counts, starts, width, rng)
        self.first = search(lanes, samples.points, samples.wanted, SCREEN_STEPS)
        # Half by the error at the points of the search, half by that at others: the first are few.
        heads = [self.first.lanes.head(r) for r in range(len(self.counts))]
        other = np.array([_error_between(h, fine) for h in heads])
        chosen = np.concatenate([_best_of_two(self.first.error, other, self.counts == m) for m in counts])
        self.chosen = self.counts[chosen]
        if len(chosen):
            lanes = self.first.lanes.take(chosen)
            self.second = search(lanes, samples.points, samples.wanted, REFINE_STEPS)

    def refined(self, m: int) -> list[Atoms]:
        """The refined heads with m atoms, best first."""
        if not len(self.chosen):
            return []
        return [self.second.lanes.head(r) for r in _best(self.second.error, self.chosen == m, REFINED)]

    def outcome(self, m: int) -> tuple[np.ndarray, np.ndarray]:
        """Errors and codes of all starts with m atoms."""
        mine = self.counts == m
        return self.first.error[mine], self.first.code[mine]


def _shortlist(heads: list[Atoms], count: int, samples: Samples) -> list[Atoms]:
    """The best ``count`` after a short polish each. The search sees few points, so its order says little
    about the box; lanes that ended in the same place are polished once."""
    done: list[tuple[Atoms, float]] = []
    errors: list[float] = []
    for head in heads:
        error = samples.error(head)
        if all(abs(error - e) > ALIKE * e for e in errors):
            errors.append(error)
            done.append(polish(head, samples, steps=SHORT, active=SHORT_ACTIVE))
    return [head for head, _ in sorted(done, key=lambda x: x[1])[:count]]


def _fit_part(heads: list[Atoms], m: int, box: Box) -> Atoms:
    """A fit of some of the heads, as a start."""
    target = HeadSum([Head(k, v, b) for k, v, b in heads])
    (found,) = fit_many(target, [m], box, key=0, starts=PART_STARTS, polished=1)
    return head_arrays(found.head)


def seed_of(key: Any) -> Any:
    """A NumPy seed from a JAX key, an int or ``None``."""
    if key is None:
        return 0
    if isinstance(key, int | np.integer):
        return abs(int(key))
    data = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    return np.asarray(data).ravel().tolist()


def least_squares_values(keys: np.ndarray, logs: np.ndarray, samples: Samples) -> Atoms:
    """The head with these keys and log-weights whose values fit best in least squares."""
    w = softmax(keys, logs, samples.points)
    return keys, np.linalg.lstsq(w, samples.wanted, rcond=1e-13)[0], logs


def _sample_sets(function: Function, box: Box, points: Any) -> tuple[Samples, Samples]:
    if points is not None:
        q = np.asarray(points, np.float64)
        if q.ndim != 2 or q.shape[1] != box.dim or not len(q) or not np.isfinite(q).all():
            raise ValueError(f"points must be finite of shape (n, {box.dim}), got shape {q.shape}.")
        both = Samples(function, q, function(q), False)
        return both, both
    if box.dim in NODES:
        axis = box.radius * np.cos(np.pi * np.arange(NODES[box.dim]) / (NODES[box.dim] - 1))
        q = np.stack(np.meshgrid(*[axis] * box.dim, indexing="ij"), -1).reshape(-1, box.dim)
    else:
        rng = np.random.default_rng(1)
        corners = rng.choice([-box.radius, box.radius], (512, box.dim))
        q = np.concatenate([rng.uniform(-box.radius, box.radius, (1536, box.dim)), corners])
    return Samples(function, q, function(q), True), fine_samples(function, box)


def _enough(samples: Samples, m: int, given: bool) -> None:
    (n, d), p = samples.points.shape, samples.wanted.shape[1]
    free = m * (d + 1 + p) - (d + 1)
    if n * p < free:
        what = "points has too few rows" if given else "the box is sampled at too few points"
        raise ValueError(
            f"{what}: {n} values of width {p} for {free} free parameters of {m} atoms; give more points "
            "or fewer atoms."
        )


def _best(error: np.ndarray, mine: np.ndarray, count: int) -> np.ndarray:
    """The lanes of one count with the least error; diverged lanes (NaN) are left out."""
    rows = np.flatnonzero(mine & np.isfinite(error))
    return rows[np.argsort(error[rows])[:count]]


def _best_of_two(first: np.ndarray, second: np.ndarray, mine: np.ndarray) -> np.ndarray:
    """``REFINED`` lanes of one count, alternately the best by either error."""
    both = np.stack(
        [_best(first, mine, REFINED), _best(np.where(np.isfinite(first), second, np.nan), mine, REFINED)], 1
    )
    return both.ravel()[np.sort(np.unique(both.ravel(), return_index=True)[1])][:REFINED]


def _error_between(head: Atoms, samples: Samples) -> float:
    """Largest error at every fourth point."""
    points = samples.points[::4]
    return float(np.abs(head_values(*head, points) - samples.wanted[::4]).max())


def _neighbours(old: Fit, m: int, samples: Samples, rng: np.random.Generator) -> list[Atoms]:
    """Starts with m atoms from a fit with one atom fewer (one is split) or more (two are merged)."""
    keys, logs = (np.array(x, np.float64) for x in (old.head.keys, old.head.log_weights))
    if len(keys) == m - 1:
        i = rng.integers(len(keys))
        shift = 0.2 * rng.normal(size=keys.shape[1]) / max(np.abs(samples.points).max(), 1e-9)
        keys = np.concatenate([keys, keys[i : i + 1] + shift])
        keys[i] -= shift
        logs = np.append(logs, logs[i])
    elif len(keys) == m + 1 and m >= 1:
        gaps = ((keys[:, None] - keys) ** 2).sum(-1) + np.where(np.eye(len(keys)), np.inf, 0)
        i, j = sorted(np.unravel_index(gaps.argmin(), gaps.shape))
        w = np.exp(logs[[i, j]] - logs[[i, j]].max())
        keys[i] = (w @ keys[[i, j]]) / w.sum()
        logs[i] = np.logaddexp(logs[i], logs[j])
        keys, logs = np.delete(keys, j, 0), np.delete(logs, j)
    else:
        return []
    return [least_squares_values(keys, logs, samples)]


def _flattened(head: Atoms, error: float, samples: Samples) -> tuple[Atoms, float]:
    """Try heads with keys contracted, in all or one principal direction, and larger values: some infima
    are only approached that way (two atoms with close keys and large values make a linear function)."""
    if error < 1e-9:
        return head, error
    again, further = polish(head, samples, steps=30)  # the first polish may have stalled in a curved valley
    if further < error:
        head, error = again, further
    for _ in range(FLATTEN_ROUNDS):
        if len(head[0]) < 2 or error < 1e-9:
            break
        keys, _, logs = head
        centred = keys - keys.mean(0)
        _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
        moves = [(1 - factor) * centred for factor in FLATTENINGS]
        # One direction alone: only where it is not flat already, the least harmful first.
        single = [np.outer(centred @ u, u) for u in axes[sizes > 0.1 * sizes[0]]]
        trials = [least_squares_values(keys - move, logs, samples) for move in moves]
        for share in (0.3, 0.9) if len(single) > 1 else ():
            alone = [least_squares_values(keys - share * move, logs, samples) for move in single]
            trials.append(min(alone, key=samples.error))
        before = error
        for trial in trials:
            if samples.error(trial) < 3 * before:
                trial, after = polish(trial, samples, steps=8)
                if after < 1.02 * error:
                    trial, after = polish(trial, samples, steps=20)
                if after < error:
                    head, error = trial, after
        if error > before * (1 - 1e-4):
            break
    return head, error


def _as_head(atoms: Atoms, error: float, function: Function, samples: Samples) -> tuple[Head, float]:
    """The head in JAX's default precision; where that is float32 its own error is reported."""
    dtype = jnp.result_type(float)
    keys, values, logs = atoms
    # The middle of the keys is free: near 0 it costs the fewest digits.
    keys = keys - 0.5 * (keys.max(0) + keys.min(0))
    values = values[:, 0] if function.scalar else values
    head = Head(*(jnp.asarray(x, dtype) for x in (keys, values, logs - logs.max())))
    if dtype == jnp.float64:
        return head, error
    rounded = [np.asarray(x, np.float64) for x in (head.keys, head.values, head.log_weights)]
    got = head_values(rounded[0], rounded[1].reshape(len(keys), -1), rounded[2], samples.points)
    return head, max(error, float(np.abs(got - samples.wanted).max()))


def check_count(name: str, value: Any) -> int:
    """``value`` as an integer of at least 1, or a ``ValueError`` that names the argument."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
    return int(value)
