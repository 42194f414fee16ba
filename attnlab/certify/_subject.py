"""The matrix a rank certificate is about, as balls.

Three kinds of subject are understood:

``attention`` (m, N): non-negative rows that sum to 1 within 1e-6. The stored entries are taken as
exact, and the matrix meant is the row-stochastic one they represent: each row divided by its exact sum.

``logits`` (m, N): exact logits, ``-inf`` for a masked entry; the matrix meant is their true softmax.

``q``, ``k``, ``beta``, ``log_weights`` and perhaps ``mask``: attention by its factors, see ``_factored``.

In all cases the difference between the float64 entries used and the matrix meant is a ball radius,
so it ends up in every bound.
"""

from collections.abc import Mapping

import flint
import numpy as np

from ._balls import ARB_BITS, EXP_ULPS, TINY, UNIT, ArbBalls, Balls, FloatBalls, gamma
from ._errors import InvalidWitness
from ._factored import is_factored, read_factored

ROW_SUM_TOLERANCE = 1e-6


def matrix_of(subject: Mapping[str, np.ndarray], arb: bool) -> Balls:
    """The subject as balls around its entries.

    Raises:
        InvalidWitness: unknown subject arrays, or not a valid attention or logit matrix.
    """
    if set(subject) == {"attention"}:
        matrix = check_attention(subject["attention"])
        return _normalised_arb(matrix) if arb else _normalised(matrix)
    if set(subject) == {"logits"}:
        logits = check_logits(subject["logits"])
        return softmax_arb(logits) if arb else softmax(FloatBalls.exact(logits))
    if is_factored(subject):
        return read_factored(subject).whole(arb)
    raise InvalidWitness(
        "The subject must be one array named attention or logits, or q, k, beta and log_weights, "
        f"not {sorted(subject)}."
    )


def check_attention(matrix: np.ndarray) -> np.ndarray:
    """Validate and return as float64; raises ``InvalidWitness`` with the first fault found."""
    if matrix.ndim != 2 or matrix.size == 0 or matrix.dtype.kind not in "fiu":
        raise InvalidWitness(f"attention must be a non-empty real (m, N) matrix, not {_kind(matrix)}.")
    matrix = matrix.astype(np.float64)
    if not np.isfinite(matrix).all():
        raise InvalidWitness("attention has NaN or infinite entries.")
    if (matrix < 0).any():
        raise InvalidWitness("attention has negative entries.")
    off = np.abs(matrix.sum(1) - 1)
    if off.max() > ROW_SUM_TOLERANCE:
        raise InvalidWitness(f"row {off.argmax()} of attention is off a sum of 1 by {off.max():.3g}.")
    return matrix


def check_logits(logits: np.ndarray) -> np.ndarray:
    """Validate and return as float64; raises ``InvalidWitness`` with the first fault found."""
    if logits.ndim != 2 or logits.size == 0 or logits.dtype.kind not in "fiu":
        raise InvalidWitness(f"logits must be a non-empty real (m, N) matrix, not {_kind(logits)}.")
    logits = logits.astype(np.float64)
    if np.isnan(logits).any() or (logits == np.inf).any():
        raise InvalidWitness("logits have NaN or +inf entries.")
    if (logits == -np.inf).all(1).any():
        raise InvalidWitness("logits have a row with every entry masked.")
    return logits


def softmax(logits: FloatBalls) -> FloatBalls:
    """Enclose the row softmax of a ball of logits (``-inf`` midpoints have radius 0)."""
    z, radius = logits.mid, logits.rad
    n = z.shape[1]
    top = z.max(1, keepdims=True)
    masked = z == -np.inf
    shifted = np.where(masked, 0.0, z - top)
    # An error d in a logit is a factor within e^{+-d}; the shift itself is one rounded subtraction.
    error = radius + 2 * UNIT * np.abs(shifted)
    raw = np.where(masked, 0.0, np.exp(shifted))
    relative = np.expm1(error * 1.01) + 2 * EXP_ULPS * UNIT
    attention = raw / raw.sum(1, keepdims=True)
    # The sum is off by at most the weighted mean of the relative errors, plus summation; halves of
    # relative errors stay below 1/2, so dividing by (1 - x) costs at most a factor 2 in x.
    mean = (attention * relative).sum(1, keepdims=True) * 1.01 + gamma(n + 2)
    if mean.max() > 0.25 or relative.max() > 0.25:
        raise InvalidWitness("The logits are known too coarsely for a float64 enclosure; use the Arb path.")
    rad = attention * (relative + 2 * mean + 4 * UNIT) * 1.5 + np.where(masked, 0.0, TINY)
    return FloatBalls(attention, rad)


def softmax_arb(logits: np.ndarray) -> ArbBalls:
    """The row softmax of exact float64 logits in Arb."""
    return normalise_arb(
        [
            [flint.arb(0) if x == -np.inf else (flint.arb(float(x)) - float(row.max())).exp() for x in row]
            for row in logits
        ]
    )


def normalise_arb(rows: list[list[flint.arb]]) -> ArbBalls:
    """Divide each row by its sum."""
    entries = []
    for row in rows:
        total = sum(row, flint.arb(0))
        entries += [x / total for x in row]
    return ArbBalls(flint.arb_mat(len(rows), len(rows[0]), entries))


def arb_precision():
    """Context manager: the working precision of the Arb path, restored afterwards."""
    return flint.ctx.workprec(ARB_BITS)


def _normalised(matrix: np.ndarray) -> FloatBalls:
    # |a/s - a| = a |1 - s| / s; the computed sum is within gamma_n of the exact one.
    n = matrix.shape[1]
    off = np.abs(matrix.sum(1) - 1) + gamma(n + 2) * 1.01
    return FloatBalls(matrix, matrix * (off / (1 - off) * 1.01)[:, None])


def _normalised_arb(matrix: np.ndarray) -> ArbBalls:
    return normalise_arb([[flint.arb(float(x)) for x in row] for row in matrix])


def _kind(array: np.ndarray) -> str:
    return f"{array.dtype} of shape {array.shape}"
