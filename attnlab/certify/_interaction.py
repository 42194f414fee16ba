"""Checkers for retained interactions: the factor radius kappa(T) and the residual tau(T).

``factor-radius``: subject ``left`` X (m, c) and ``right`` Y (N, c), T = X Y'. kappa(T) is the least
(max_i |x_i|)(max_j |y_j|) over all factorisations of T up to row and column constants, of any
width.

``tau``: subject ``attention`` or ``logits`` (m, N). A retained interaction is x y' + 1 b'; its
softmax is within tau = 2 tanh(w / 4) of A in every row (l1), w the largest oscillation of a row of
log A - x y' - 1 b'.
"""

from collections.abc import Mapping
from typing import Any

import flint
import numpy as np

from ._balls import ARB_BITS, UNIT, ArbBalls, FloatBalls, down, gamma, up
from ._errors import InvalidWitness
from ._rank import real
from ._subject import check_attention, check_logits
from ._verdict import Verdict

Named = Mapping[str, np.ndarray]

# Assumed bound on the error of NumPy's float64 log, in units in the last place (see EXP_ULPS); the
# Arb path assumes nothing.
LOG_ULPS = 4
# Floor for lengths whose squares underflow: n * 2^-1022 under the root, n up to 10^8.
SQUARE_TINY = 1e-149


def check_radius(claim: Mapping[str, Any], witness: Named, subject: Named, arb: bool) -> Verdict:
    """Claim ``lower`` <= kappa(T) <= ``upper``; see ``radius_bounds``."""
    lower, upper = number(claim, "lower"), number(claim, "upper")
    low, high = radius_bounds(witness, subject, arb)
    if not arb and not (lower <= low and high <= upper):  # an extreme gauge needs the wider format
        low, high = radius_bounds(witness, subject, True)
    holds = lower <= low and high <= upper
    return Verdict(
        holds,
        f"The factor radius kappa(T) lies in [{low:.8g}, {high:.8g}]"
        + ("." if holds else f"; the claimed [{lower:.8g}, {upper:.8g}] is not proved."),
        high,
        min(low - lower, upper - high),
    )


def radius_bounds(witness: Named, subject: Named, arb: bool) -> tuple[float, float]:
    """Proved bounds on kappa(X Y').

    Witness: factors ``left`` x (m, r), ``right`` y (N, r) of nearly the same interaction up to row
    and column constants, and non-negative ``row_weights`` (m,), ``column_weights`` (N,).

    Let E = X Y' - x y' up to constants. kappa is a seminorm, and kappa(E) <= max_i |E_i|_2 (factor
    E as E I), so |kappa(X Y') - kappa(x y')| is at most that. For x y' the upper bound is the
    product of the two radii. Lower: with weights normalised and c_x, c_y the weighted means, every
    factorisation of x y' up to constants has

        max|x_i| max|y_j| >= sqrt(sum_i l_i |x_i - c_x|^2 sum_j m_j |y_j - c_y|^2) >= nuclear norm
        of Q, Q = diag(l)^(1/2) (x - c_x)(y - c_y)' diag(m)^(1/2),

    because centring removes the constants; and the nuclear norm is at least <Q, Z> / ||Z|| for any
    Z. No inverse is enclosed, so ill-conditioned and rank-deficient T need no special care.
    """
    big_x, big_y = real(subject, "left", (None, None)), real(subject, "right", (None, None))
    if big_x.shape[1] != big_y.shape[1]:
        raise InvalidWitness(f"left and right differ in width: {big_x.shape} and {big_y.shape}.")
    m, n = len(big_x), len(big_y)
    x, y = real(witness, "left", (m, None)), real(witness, "right", (n, None))
    if x.shape[1] != y.shape[1]:
        raise InvalidWitness(f"witness left and right differ in width: {x.shape} and {y.shape}.")
    loss = _distance(big_x, big_y, x, y, arb)
    upper = up((_radius(x) * _radius(y) + loss) * (1 + 4 * UNIT))
    lower = 0.0
    if x.shape[1]:
        row, column = real(witness, "row_weights", (m,)), real(witness, "column_weights", (n,))
        lower = _nuclear(x, y, row, column) - loss * (1 + 4 * UNIT)
    return max(0.0, down(lower)), upper


def check_tau(claim: Mapping[str, Any], witness: Named, subject: Named, arb: bool) -> Verdict:
    """Claim ``rank`` and ``tau``; witness ``left`` (m, r), ``right`` (N, r), ``column_gauge`` (N,).

    For probability rows p, p' whose log-ratio oscillates by w, ||p - p'||_1 <= 2 tanh(w / 4): at
    fixed oscillation the worst case has two values of the ratio, hence two atoms, p/p' = e^{+-w/2}
    up to scale, and the best masses give tanh(w / 4) in total variation.
    """
    rank, tau = claim["rank"], number(claim, "tau")
    if set(subject) == {"attention"}:
        matrix = check_attention(subject["attention"])
        if (matrix == 0).any():
            raise InvalidWitness("attention has zeros: take a full-support block.")
    elif set(subject) == {"logits"}:
        matrix = check_logits(subject["logits"])
        if not np.isfinite(matrix).all():
            raise InvalidWitness("logits are masked: take a full-support block.")
    else:
        raise InvalidWitness(f"The subject must be attention or logits, not {sorted(subject)}.")
    m, n = matrix.shape
    x, y = real(witness, "left", (m, None)), real(witness, "right", (n, None))
    if x.shape[1] != rank or y.shape[1] != rank:
        raise InvalidWitness(f"The factors have widths {x.shape[1]}, {y.shape[1]}, not rank {rank}.")
    gauge = real(witness, "column_gauge", (n,))
    left, right = np.c_[x, np.ones(m)], np.c_[y, gauge].T
    log = "attention" in subject
    low, high = (_residual_arb if arb else _residual)(matrix, log, left, right)
    swing = float(((high.max(1) - low.min(1)) * (1 + 2 * UNIT)).max())
    bound = min(2.0, up(2 * np.tanh(swing / 4) * (1 + 1e-14)))
    holds = bound <= tau
    return Verdict(
        holds,
        f"An interaction of rank {rank} with free key weights reproduces every row of A within "
        f"{bound:.6g} (l1)" + ("." if holds else f"; the claimed tau {tau:.6g} is not proved."),
        bound,
        tau - bound,
    )


def number(claim: Mapping[str, Any], name: str) -> float:
    """A finite non-negative claimed number."""
    value = claim[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < np.inf:
        raise InvalidWitness(f"claim {name} must be a finite non-negative number, not {value!r}.")
    return float(value)


def _distance(big_x: np.ndarray, big_y: np.ndarray, x: np.ndarray, y: np.ndarray, arb: bool) -> float:
    """An upper bound on max_i |E_i|_2, E = X Y' - x y' - u 1' - 1 v' with u, v chosen here."""
    u = big_x @ big_y.mean(0) - x @ y.mean(0)
    v = big_y @ big_x.mean(0) - y @ x.mean(0) - u.mean()
    left = np.c_[big_x, -x, -u, -np.ones(len(x))]
    right = np.c_[big_y, y, np.ones(len(y)), v].T
    if arb:
        with flint.ctx.workprec(ARB_BITS):
            low, high = (ArbBalls.exact(left) @ ArbBalls.exact(right)).entry_bounds()
    else:
        low, high = (FloatBalls.exact(left) @ FloatBalls.exact(right)).entry_bounds()
    entries = np.maximum(np.abs(low), np.abs(high))
    squares = (entries**2).sum(1).max() * (1 + gamma(entries.shape[1] + 4))
    return float(np.sqrt(squares) * (1 + 4 * UNIT) + SQUARE_TINY)


def _radius(x: np.ndarray) -> float:
    """max_i |x_i|_2, rounded up."""
    squares = (x**2).sum(1) * (1 + gamma(x.shape[1] + 4))
    return float(np.sqrt(squares.max(initial=0.0)) * (1 + 4 * UNIT) + SQUARE_TINY)


def _nuclear(x: np.ndarray, y: np.ndarray, row: np.ndarray, column: np.ndarray) -> float:
    """A lower bound on the nuclear norm of Q, with Z = diag(l)^(1/2) (x - c_x) F G' (y - c_y)'
    diag(m)^(1/2).

    F and G come from a float64 singular value decomposition of Q, but any F, G give a bound:
    <Q, Z> = tr(Sx F (Sy G)') and ||Z||^2 <= ||F' Sx F|| ||G' Sy G||, with Sx, Sy the covariances.
    """
    zx, total_x = _centred(x, row)
    zy, total_y = _centred(y, column)
    f, g = _whitening(zx.mid, zy.mid, row, column)
    half_x, size_x = _half(zx, f, row)
    half_y, size_y = _half(zy, g, column)
    trace = (half_x @ half_y.transposed).entry_bounds()[0].diagonal()
    inner = float(trace.sum()) - gamma(len(trace) + 2) * float(np.abs(trace).sum())
    return down(inner / np.sqrt(size_x * size_y * total_x * total_y) * (1 - 1e-14))


def _centred(x: np.ndarray, weights: np.ndarray) -> tuple[FloatBalls, float]:
    """x minus its exact weighted mean (the computed mean is off by an enclosed drift); total
    weight."""
    if (weights < 0).any() or not weights.sum() > 0:
        raise InvalidWitness("Weights must be non-negative and not all zero.")
    total = float(weights.sum())
    slack = gamma(len(weights) + 2)
    mean = np.broadcast_to(weights @ x / total, x.shape)
    z = FloatBalls.exact(x) - FloatBalls.exact(mean)
    low, high = (FloatBalls.exact(weights[None]) @ z).entry_bounds()
    drift = np.maximum(np.abs(low), np.abs(high)) / (total * (1 - slack)) * (1 + 1e-14)
    return FloatBalls(z.mid, (z.rad + drift) * (1 + 4 * UNIT)), total * (1 + slack) * (1 + 2 * UNIT)


def _whitening(
    zx: np.ndarray, zy: np.ndarray, row: np.ndarray, column: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """F and G with F' Sx F = G' Sy G = I up to rounding and Q in diagonal form; only proposed."""
    rx = np.linalg.qr(np.sqrt(row)[:, None] * zx)[1]
    ry = np.linalg.qr(np.sqrt(column)[:, None] * zy)[1]
    u, _, vt = np.linalg.svd(rx @ ry.T, full_matrices=False)
    return np.linalg.lstsq(rx, u, rcond=None)[0], np.linalg.lstsq(ry, vt.T, rcond=None)[0]


def _half(z: FloatBalls, f: np.ndarray, weights: np.ndarray) -> tuple[FloatBalls, float]:
    """S F and a bound on ||F' S F||, S = z' diag(w) z."""
    white = z @ FloatBalls.exact(f)
    weighted = white.scale_rows(weights)
    return z.transposed @ weighted, (white.transposed @ weighted).norm()


def _residual(
    matrix: np.ndarray, log: bool, left: np.ndarray, right: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    target = np.log(matrix) if log else matrix
    radius = 2 * LOG_ULPS * UNIT * np.abs(target) if log else np.zeros_like(target)
    balls = FloatBalls(target, radius) - FloatBalls.exact(left) @ FloatBalls.exact(right)
    return balls.entry_bounds()


def _residual_arb(
    matrix: np.ndarray, log: bool, left: np.ndarray, right: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    with flint.ctx.workprec(ARB_BITS):
        entries = [flint.arb(float(a)) for a in matrix.ravel()]
        if log:
            entries = [a.log() for a in entries]
        target = ArbBalls(flint.arb_mat(matrix.shape[0], matrix.shape[1], entries))
        return (target - ArbBalls.exact(left) @ ArbBalls.exact(right)).entry_bounds()
