"""Enclosures of a softmax head on many boxes at once: interval softmax, and a Taylor polynomial.

Both are in NumPy float64 with a-priori rounding bounds. On a box with centre c and half-widths r an
atom's logit, relative to a reference key, moves by at most s_i = sum_j r_j |k_ij - k_j|.

*Interval softmax.* The weights are softmax(l + u) with |u_i| <= s_i; the mean of the values is largest
when u_i = +s_i for the values above some level and -s_i below it, so trying all levels is exact.

*Taylor.* With y = (q - c) / r the head is N(y)/D(y), sums of exponentials, so its coefficients come from
one product with a table of monomials and one division of power series. Along a segment, t -> head(c +
t r y) is analytic for |Im t| S < pi, S <= 2 max s_i the oscillation of the moving logits; there
|D| >= cos(|Im t| S / 2) D(Re t), so the head stays within (osc v / 2) / cos(|Im t| S / 2) of the midrange
of its values. Cauchy's estimate on discs of radius 2 a / S bounds the remainder of order n by
(osc v / 2) (S / 2)^(n+1) / (a^(n+1) cos a), for any 0 < a < pi/2.

*Rounding.* The computed weights are those of logits that are off by at most d, which moves the head by
at most osc(v) d / 2. A quotient Q of series computed for N/D has ||N/D - Q|| <= ||N - D Q|| ||1/D|| and
||1/D|| <= 1 / (2 |D_0| - ||D||) in the sum of absolute coefficients, a norm with ||PQ|| <= ||P|| ||Q||.
"""

from dataclasses import dataclass

import numpy as np

from ._balls import TINY, UNIT, gamma
from ._power_series import Exponents, exponents
from ._subject import EXP_ULPS

LARGEST_SPREAD = 300.0  # beyond, exp could underflow in an interval softmax: the range of v is used


@dataclass(frozen=True, eq=False)
class Ranges:
    """Per box: bounds on the head, and how much each coordinate contributes to their width."""

    low: np.ndarray
    high: np.ndarray
    share: np.ndarray  # (boxes, dim)
    spread: np.ndarray  # max_i s_i


@dataclass(frozen=True, eq=False)
class Polynomial:
    """Per box: Taylor coefficients in y = (q - c)/r, and a bound on everything left out (inf: none)."""

    coefficients: np.ndarray  # (terms, boxes) in all variables
    error: np.ndarray
    remainder: np.ndarray  # the part of ``error`` that is truncation


class HeadSeries:
    """One scalar head, prepared for enclosures of a fixed order.

    Arguments:
        keys: (n, d); values: (n,); logs: (n,) float64, all finite.
        order: degree of the Taylor polynomial.
    """

    def __init__(self, keys: np.ndarray, values: np.ndarray, logs: np.ndarray, order: int):
        # A coordinate in which all keys agree cancels in the softmax: the head does not depend on it.
        self.active = np.flatnonzero((keys != keys[0]).any(0))
        used = keys[:, self.active]
        self.keys = used - 0.5 * (used.max(0) + used.min(0)) if used.size else used
        self.logs = logs
        self.middle = 0.5 * (float(values.max()) + float(values.min()))
        self.values = values - self.middle
        self.half_range = float(np.abs(self.values).max()) * (1 + 4 * UNIT)
        self.falling = np.argsort(-self.values)
        self.terms = exponents(len(self.active), order)
        self.monomials = (self.terms.monomials(self.keys.T) / self.terms.factorials[:, None]).T
        full = exponents(keys.shape[1], order)
        self.size = len(full.table)
        self.rows = _rows(full, self.terms, self.active)
        self.dim = keys.shape[1]
        self.constant = _truncation(self.terms.order)

    def logits(self, centre: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(n, boxes) logits minus their largest, and a bound on the error of logit and exp together."""
        c = centre[:, self.active]
        z = self.keys @ c.T + self.logs[:, None]
        size = (np.abs(self.keys) @ np.abs(c).T + np.abs(self.logs)[:, None]).max(0)
        error = 8 * gamma(len(self.active) + 16) * size + 16 * EXP_ULPS * UNIT
        return z - z.max(0), error

    def ranges(self, centre: np.ndarray, half: np.ndarray) -> Ranges:
        """Interval softmax on boxes (boxes, d)."""
        z, error = self.logits(centre)
        move = half[:, self.active].T
        s = np.abs(self.keys) @ move
        spread = s.max(0, initial=0.0) * (1 + gamma(len(self.active) + 64))
        top = (z + s).max(0)
        v = self.values[self.falling, None]
        plus, minus = np.exp(z + s - top)[self.falling], np.exp(z - s - top)[self.falling]
        high = _best_mean(plus, minus, v)
        low = -_best_mean(plus[::-1], minus[::-1], -v[::-1])
        drift = error + 8 * gamma(len(self.active) + 16) * spread
        slack = self.half_range * (drift + 4 * gamma(4 * len(v) + 20)) + TINY
        tight = spread < LARGEST_SPREAD
        low = np.where(tight, np.maximum(low - slack, -self.half_range), -self.half_range)
        high = np.where(tight, np.minimum(high + slack, self.half_range), self.half_range)
        share = np.zeros((len(centre), self.dim))
        share[:, self.active] = self.half_range * half[:, self.active] * np.abs(self.keys).max(0)
        pad = 4 * UNIT * (abs(self.middle) + self.half_range)
        return Ranges(self.middle + low - pad, self.middle + high + pad, share, spread)

    def polynomial(self, centre: np.ndarray, half: np.ndarray) -> Polynomial:
        """Taylor polynomial with an error bound on boxes (boxes, d)."""
        z, error = self.logits(centre)
        move = half[:, self.active].T
        s = np.abs(self.keys) @ move
        spread = s.max(0, initial=0.0) * (1 + gamma(len(self.active) + 64))
        p = np.exp(z)
        scale = self.terms.monomials(move)
        below = (self.monomials.T @ p) * scale
        above = (self.monomials.T @ (p * self.values[:, None])) * scale
        quotient = self.terms.divide(above, below)
        big = (p * np.exp(np.minimum(s, 30.0))).sum(0)
        norm_below, norm_above = np.abs(below).sum(0), np.abs(above).sum(0)
        norm = np.abs(quotient).sum(0)
        step = gamma(len(self.keys) + 8 * self.terms.order + 2 * len(self.terms.table) + 32)
        miss = step * (self.half_range * big + big * norm + norm_above + norm_below * norm)
        room = 2 * below[0] - norm_below - 1e-9 * below[0] - 4 * step * big
        with np.errstate(divide="ignore", invalid="ignore"):
            rounding = np.where((room > 0) & (spread < 20), 2 * miss / room, np.inf)
        rounding = rounding + self.half_range * error * 2 + TINY
        remainder = self.half_range * self.constant * spread ** (self.terms.order + 1) * (1 + 1e-12)
        coefficients = np.zeros((self.size, len(centre)))
        coefficients[self.rows] = quotient
        coefficients[0] += self.middle
        rounding = rounding + 16 * UNIT * (norm + abs(self.middle))
        return Polynomial(coefficients, rounding + remainder, remainder)


def polynomial_range(terms: Exponents, coefficients: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bounds over |y_j| <= 1 of polynomials (terms, boxes), and the share of each variable in their width.

    Linear and pure square terms are maximised exactly, variable by variable; a mixed square is split by
    |y_j y_k| <= (y_j^2 + y_k^2)/2, which costs nothing near a well-conditioned extremum; the rest enters
    by absolute value.
    """
    d, degree = terms.dim, terms.table.sum(1)
    size = np.abs(coefficients)
    total = size.sum(0)
    shape = coefficients.shape[1]
    rest = size[degree >= 3].sum(0)
    high, low = coefficients[0] + rest, coefficients[0] - rest
    share = np.zeros((shape, d))
    for j in range(d):
        row = np.flatnonzero((degree == 1) & (terms.table[:, j] == 1))[0] if terms.order else 0
        a = coefficients[row] if terms.order else np.zeros(shape)
        b, mixed = np.zeros(shape), np.zeros(shape)
        if terms.order >= 2:
            b = coefficients[np.flatnonzero((degree == 2) & (terms.table[:, j] == 2))[0]]
            mixed = 0.5 * size[(degree == 2) & (terms.table[:, j] == 1)].sum(0)
        high = high + _peak(a, b + mixed)
        low = low - _peak(-a, mixed - b)
        many = degree >= 2
        share[:, j] = terms.table[many, j] @ size[many]
    pad = gamma(2 * len(terms.table) + 8 * d + 16) * total
    return low - pad, high + pad, share


def _peak(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """max over |y| <= 1 of a y + b y^2."""
    a = np.abs(a)
    inside = -2 * b > a
    return np.where(inside, a * a / np.where(inside, -4 * b, 1.0), a + b)


def _best_mean(plus: np.ndarray, minus: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Largest mean of v (falling) over weights between minus and plus: plus on a head of the list."""
    top_mass, top = np.cumsum(plus, 0), np.cumsum(plus * v, 0)
    end_mass = np.cumsum(minus[::-1], 0)[::-1] - minus
    end = np.cumsum((minus * v)[::-1], 0)[::-1] - minus * v
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nanmax((top + end) / (top_mass + end_mass), axis=0)


def _rows(full: Exponents, part: Exponents, active: np.ndarray) -> np.ndarray:
    place = {tuple(row): i for i, row in enumerate(full.table.tolist())}
    padded = np.zeros((len(part.table), full.dim), dtype=int)
    padded[:, active] = part.table
    return np.array([place[tuple(row)] for row in padded.tolist()])


def _truncation(order: int) -> float:
    """min over a of 1 / (a^(n+1) cos a), rounded up (any a gives a bound)."""
    a = np.linspace(0.3, 1.56, 400)
    return float((1 / (a ** (order + 1) * np.cos(a))).min()) * (1 + 1e-12)
