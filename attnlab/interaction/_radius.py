"""The factor radius kappa(T) of a retained interaction, by a multiplicative design algorithm.

kappa(T) is the least (max_i |x_i|)(max_j |y_j|) over T = X Y' up to row and column constants. In
the metric M = G G' of the gauge and the translations it is a convex problem whose dual sees T
alone:

    kappa(T) = max over probability weights l (rows), w (columns) of the nuclear norm of
               diag(l)^(1/2) (I - 1 l') T (I - 1 w')' diag(w)^(1/2).

For fixed weights the best translations are the weighted means and the best metric M makes the
weighted covariances equal (M Sx M = Sy). Weights are then multiplied by the squared distances of
their points, as in optimal design (Titterington 1976; Silvey, Titterington and Torsney 1978). Both
bounds are valid at every iterate; the ends returned are those proved by ``attnlab.certify``.

The inner loop is matmul-only on r x r matrices: in a gauge where Sx = Sy is diagonal, M stays
close to I between two host factorisations, so M and its inverse follow by a few quasi-Newton and
Newton-Schulz steps.
"""

from dataclasses import dataclass
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from .._lanes import run_lanes
from ..certify import Certificate
from ..certify._interaction import radius_bounds
from ._intrinsic import _matrix

POWER = 0.9  # exponent of the multiplicative update; 1 can oscillate between two designs
FLOOR = 1e-7  # weight kept on the uniform design, so that no direction is lost
DRIFT = 0.5  # relative change of the covariances at which the host refactorises
MAX_ROUNDS = 500  # about twenty are usual
RANK_TOLERANCE = 1e-13  # relative singular values below this are left to the certified remainder
LARGEST = 1e120  # entries whose products with each other and whose squares are far from overflow
ARB_ABOVE = 0.1  # share of the tolerance that float64 rounding may cost before Arb takes over


class Gauge(eqx.Module):
    """How the attaining factors come from the given ones: x = (X - x0) G, y = (Y - y0) H.

    Attributes:
        left_map, right_map: G, H of shape (c, r); G H' is the identity on the affine span.
        x0, y0: translations, shape (c,).
    """

    left_map: np.ndarray
    right_map: np.ndarray
    x0: np.ndarray
    y0: np.ndarray


@dataclass(frozen=True, eq=False)
class FactorRadius:
    """A certified bracket on kappa(T) with both witnesses.

    Attributes:
        lower, upper: proved by ``attnlab.certify``; ``upper`` is attained by ``left`` and ``right``
            up to the remainder of the rank reduction, which the proof includes.
        left, right: factors of shape (m, r), (N, r), r the affine rank.
        gauge: the map from the given coordinates to those factors.
        row_weights, column_weights: the dual weights, shapes (m,), (N,).
        certificate: kind ``factor-radius``, subject X and Y.
    """

    lower: float
    upper: float
    left: np.ndarray
    right: np.ndarray
    gauge: Gauge
    row_weights: np.ndarray
    column_weights: np.ndarray
    certificate: Certificate

    @property
    def relative_gap(self) -> float:
        """(upper - lower) / upper; 0 where kappa vanishes up to underflow."""
        return (self.upper - self.lower) / self.upper if self.upper > 1e-100 else 0.0

    def __repr__(self) -> str:
        return f"FactorRadius({self.lower:.6g} <= kappa <= {self.upper:.6g}, certified)"


def factor_radius(X: ArrayLike, Y: ArrayLike, *, tol: float = 1e-4) -> FactorRadius:
    """Bracket kappa(X Y') and return the gauge that attains it.

    Arguments:
        X: shape (m, c). Y: shape (N, c). Finite; any gauge, translation and affine rank.
        tol: relative gap aimed at. The gap reached is what the result says.

    Raises:
        ValueError: not finite real matrices of one width, entries whose squares overflow, or ``tol``
            out of range.

    >>> X = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> factor_radius(X, 3 * X)
    FactorRadius(3 <= kappa <= 3, certified)
    """
    if not 0 < tol < 1:
        raise ValueError(f"tol must be between 0 and 1, got {tol}; use 1e-4.")
    x, y = _matrix(X, "X"), _matrix(Y, "Y")
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"X and Y must have one width, got shapes {x.shape} and {y.shape}.")
    for name, part in (("X", x), ("Y", y)):
        if np.abs(part).max() > LARGEST:
            raise ValueError(f"{name} has entries above {LARGEST:g}, whose squares overflow: scale it down.")
    design = solve_designs([_reduced(x, y)], 0.7 * tol)[0]
    subject = {"left": x, "right": y}
    witness = {
        "left": design.left,
        "right": design.right,
        "row_weights": design.row_weights,
        "column_weights": design.column_weights,
    }
    lower, upper = radius_bounds(witness, subject, arb=False)
    if upper - design.upper > ARB_ABOVE * tol * design.upper:  # an extreme gauge; Arb is slower
        lower, upper = radius_bounds(witness, subject, arb=True)
    claim = {"lower": lower * (1 - 1e-9), "upper": upper * (1 + 1e-9)}
    return FactorRadius(
        lower,
        upper,
        design.left,
        design.right,
        _gauge(x, y, design),
        design.row_weights,
        design.column_weights,
        Certificate("factor-radius", claim, witness, subject),
    )


class Design(eqx.Module):
    """Factors, weights and the float64 bounds they give (not certified)."""

    left: np.ndarray
    right: np.ndarray
    row_weights: np.ndarray
    column_weights: np.ndarray
    lower: float
    upper: float


def solve_designs(problems: list[tuple[np.ndarray, np.ndarray]], tol: float) -> list[Design]:
    """Run the algorithm on problems of one shape (m, N), one lane each, ranks padded with zeros."""
    lanes = len(problems)
    # The next power of two: few widths, so few compiles.
    width = 1 << (max(1, *(x.shape[1] for x, _ in problems)) - 1).bit_length()
    m, n = len(problems[0][0]), len(problems[0][1])
    x, y = np.zeros((lanes, m, width)), np.zeros((lanes, n, width))
    spread = np.ones((lanes, width))
    row, column = np.full((lanes, m), 1 / m), np.full((lanes, n), 1 / n)
    steps, active = np.full(lanes, 4), np.ones(lanes, bool)
    best: list[Design | None] = [None] * lanes
    factors = list(problems)
    for _ in range(MAX_ROUNDS):
        for i in np.flatnonzero(active):
            row[i], column[i] = row[i] / row[i].sum(), column[i] / column[i].sum()
            left, right, diagonal = _balanced(*factors[i], row[i], column[i])
            factors[i] = left, right
            upper = np.sqrt((left**2).sum(1).max(initial=0) * (right**2).sum(1).max(initial=0))
            rank = left.shape[1]
            x[i], y[i], spread[i] = 0, 0, 1
            x[i, :, :rank], y[i, :, :rank], spread[i, :rank] = left, right, diagonal
            found = Design(left, right, row[i].copy(), column[i].copy(), diagonal.sum(), upper)
            best[i] = found = _better(best[i], found)
            active[i] = found.upper > (1 + tol) * found.lower
        if not active.any():
            break
        lane = (x, y, row, column, spread, np.where(active, steps, 0).astype(np.int32))
        moved = run_lanes(_advance, lane, dtype=jnp.result_type(float))
        row, column, done = (np.array(part, dtype=np.float64) for part in moved)
        steps = np.clip(np.where(done < steps, done, 1.3 * steps).astype(int) + 1, 4, 100)
    return [design for design in best if design is not None]


def _better(old: Design | None, new: Design) -> Design:
    """Keep the best primal and the best dual separately; either is valid without the other."""
    if old is None:
        return new
    primal = new if new.upper < old.upper else old
    dual = new if new.lower > old.lower else old
    return Design(primal.left, primal.right, dual.row_weights, dual.column_weights, dual.lower, primal.upper)


def _advance(lane: tuple[Array, ...]) -> tuple[Array, Array, Array]:
    """Up to ``steps`` multiplicative updates; stops when the covariances drift."""
    x, y, row, column, spread, steps = lane
    identity = jnp.eye(x.shape[1], dtype=x.dtype)
    sums = spread[:, None] + spread[None, :]
    scale = jax.lax.rsqrt(spread[:, None] * spread[None, :])
    dot = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)

    def body(state: tuple[Array, ...]) -> tuple[Array, ...]:
        count, _, row, column, metric = state
        xc, yc = x - dot(row, x)[None, :], y - dot(column, y)[None, :]
        sx, sy = dot(xc.T, row[:, None] * xc), dot(yc.T, column[:, None] * yc)
        defect = sy - dot(dot(metric, sx), metric)
        steady = jnp.max(jnp.sum(jnp.abs(defect * scale), axis=1)) < DRIFT
        for _ in range(3):  # quasi-Newton for M Sx M = Sy, exact when Sx and Sy are diagonal
            metric = metric + defect / sums
            defect = sy - dot(dot(metric, sx), metric)
        inverse = 2 * identity - metric
        for _ in range(3):
            inverse = dot(inverse, 2 * identity - dot(metric, inverse))
        a = jnp.sum(dot(xc, metric) * xc, axis=1)
        b = jnp.sum(dot(yc, inverse) * yc, axis=1)
        level = jnp.maximum(jnp.sum(metric * sx), jnp.finfo(x.dtype).tiny)
        new_row, new_column = _reweigh(row, a / level), _reweigh(column, b / level)
        steady &= jnp.all(jnp.isfinite(new_row)) & jnp.all(jnp.isfinite(new_column))
        return (
            count + steady,
            ~steady,
            jnp.where(steady, new_row, row),
            jnp.where(steady, new_column, column),
            metric,
        )

    def unfinished(state: tuple[Array, ...]) -> Array:
        return (state[0] < steps) & ~state[1]

    start = (jnp.zeros((), steps.dtype), jnp.zeros((), bool), row, column, identity)
    count, _, row, column, _ = jax.lax.while_loop(unfinished, body, start)
    return row, column, count


def _reweigh(weights: Array, ratios: Array) -> Array:
    raised = weights * jnp.maximum(ratios, 1e-3) ** POWER
    # Without the floor a direction that the optimal design leaves out loses its covariances, and with
    # them its metric; then a point that sticks out in that direction is never seen.
    return (1 - FLOOR) * raised / jnp.sum(raised) + FLOOR / weights.size


def _reduced(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Factors of the doubly centred X Y' of full affine rank, in a balanced gauge."""
    x, y = x - x.mean(0), y - y.mean(0)
    qx, rx = np.linalg.qr(x)
    qy, ry = np.linalg.qr(y)
    u, s, vt = np.linalg.svd(rx @ ry.T, full_matrices=False)
    # Rounding leaves singular values of this size where there are none.
    noise = np.linalg.norm(rx, 2) * np.linalg.norm(ry, 2) * 1e-15 if min(rx.size, ry.size) else 0.0
    keep = s > max(noise, RANK_TOLERANCE * s.max(initial=0))
    root = np.sqrt(s[keep])
    return (qx @ u[:, keep]) * root, (qy @ vt[keep].T) * root


def _balanced(
    x: np.ndarray, y: np.ndarray, row: np.ndarray, column: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Translate and gauge so that both weighted covariances are the same diagonal matrix."""
    x, y = x - row @ x, y - column @ y
    rx = np.linalg.qr(np.sqrt(row)[:, None] * x)[1]
    ry = np.linalg.qr(np.sqrt(column)[:, None] * y)[1]
    u, s, vt = np.linalg.svd(rx @ ry.T)
    root = np.sqrt(s)
    left = np.linalg.solve(rx.T, x.T).T @ u * root
    right = np.linalg.solve(ry.T, y.T).T @ vt.T * root
    return left, right, s


def _gauge(x: np.ndarray, y: np.ndarray, design: Design) -> Gauge:
    """Least-squares maps from the given to the attaining factors."""
    x0, y0 = x.mean(0), y.mean(0)
    dx, dy = design.left.mean(0), design.right.mean(0)
    left = np.linalg.lstsq(x - x0, design.left - dx, rcond=None)[0]
    right = np.linalg.lstsq(y - y0, design.right - dy, rcond=None)[0]
    # Translations that turn the centred maps into (X - x0) G: G has full column rank.
    x0 = x0 - np.linalg.lstsq(left.T, dx, rcond=None)[0] if left.size else x0
    y0 = y0 - np.linalg.lstsq(right.T, dy, rcond=None)[0] if right.size else y0
    return Gauge(left, right, x0, y0)
