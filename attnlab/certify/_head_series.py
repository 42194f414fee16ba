"""Enclosures of a softmax head on many boxes at once: interval softmax, and a Taylor polynomial.

Both are in NumPy float64 with a-priori rounding bounds. On a box with centre c and half-widths r an
atom's logit, relative to a reference key, moves by at most s_i = sum_j r_j |k_ij - k_j|.

*Interval softmax.* The weights are softmax(l + u) with |u_i| <= s_i; the mean of the values is largest
when u_i = +s_i for the values above some level and -s_i below it, so trying all levels is exact.

*Taylor.* With y = (q - c) / r the head is N(y)/D(y), sums of exponentials, so its coefficients come from
one product with a table of monomials and one division of power series: Q, of order n. What Q leaves out is
bounded relative to the value Q_0 at the centre. Let N' = N - Q_0 D and Q' = Q - Q_0, then F - Q =
(N' - D Q') / D. For |y_j| <= 1, and in the sum of absolute coefficients (a norm with ||PQ|| <= ||P|| ||Q||):
with t_i = s_i^(n+1) e^(s_i) / (n+1)! the terms of N' beyond order n are at most sum_i p_i |v_i - Q_0| t_i
and those of D to sum_i p_i t_i; the terms of D_n Q' beyond order n to at most the sum of |D|_k |Q'|_l over
degrees k + l > n; up to order n nothing is left; and D >= sum_i p_i e^(-s_i). The size of the values enters
only through the first term, damped by (n+1)!: good fits often have values a hundred times larger than what
they compute.

*Rounding.* The computed weights are those of logits that are off by at most d, which moves the head by
at most osc(v) d / 2. The terms of N - D Q up to order n are rounding errors of sums and of the division, and
are bounded with gamma_k times the sums of absolute values of what was added.
"""

import math
from dataclasses import dataclass

import numpy as np

from ._balls import INFLATE, TINY, UNIT, gamma
from ._power_series import Exponents, exponents
from ._subject import EXP_ULPS

LARGEST_MOVE = 20.0  # of a logit on a box, for a Taylor polynomial to be of any use
LARGEST_SPREAD = 300.0  # beyond, exp could underflow in an interval softmax: the range of v is used


@dataclass(frozen=True, eq=False)
class Ranges:
    """Per box: bounds on the head, and how far each coordinate moves the logits."""

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
        share[:, self.active] = half[:, self.active] * np.abs(self.keys).max(0)
        pad = 4 * UNIT * (abs(self.middle) + self.half_range)
        return Ranges(self.middle + low - pad, self.middle + high + pad, share, spread)

    def polynomial(self, centre: np.ndarray, half: np.ndarray) -> Polynomial:
        """Taylor polynomial with an error bound on boxes (boxes, d)."""
        z, error = self.logits(centre)
        move = half[:, self.active].T
        s = np.abs(self.keys) @ move * (1 + gamma(len(self.active) + 64))
        p, grown, order = np.exp(z), np.exp(np.minimum(s, LARGEST_MOVE)), self.terms.order
        scale = self.terms.monomials(move)
        below = (self.monomials.T @ p) * scale
        above = (self.monomials.T @ (p * self.values[:, None])) * scale
        quotient = self.terms.divide(above, below)
        norms_below, norms = self.terms.by_degree(below), self.terms.by_degree(quotient)
        norm, least = norms.sum(0), (p / grown).sum(0)
        tail = s ** (order + 1) * grown / math.factorial(order + 1)
        beyond = (p * np.abs(self.values[:, None] - quotient[0]) * tail).sum(0)
        beyond += (p * tail).sum(0) * norms[1:].sum(0)
        # Row l of the running sums from the end: degrees of D above order - l - 1.
        beyond += (norms[1:] * np.cumsum(norms_below[::-1], 0)[:order]).sum(0)
        step = gamma(len(self.keys) + 8 * order + 2 * len(self.terms.table) + 32)
        big = (p * grown).sum(0)
        miss = step * ((self.half_range + norm) * big + np.abs(above).sum(0) + norms_below.sum(0) * norm)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            remainder, rounding = beyond / least * INFLATE, 2 * miss / least
        usable = (s.max(0, initial=0.0) < LARGEST_MOVE) & np.isfinite(remainder) & np.isfinite(rounding)
        remainder = np.where(usable, remainder, np.inf)
        rounding = rounding + self.half_range * error * 2 + 16 * UNIT * (norm + abs(self.middle)) + TINY
        coefficients = np.zeros((self.size, len(centre)))
        coefficients[self.rows] = quotient
        coefficients[0] += self.middle
        return Polynomial(coefficients, np.where(usable, rounding + remainder, np.inf), remainder)


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
