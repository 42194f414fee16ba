"""Matrices with an error radius, in two arithmetics that share one interface.

``FloatBalls`` holds a float64 midpoint and an entrywise radius; a product obeys the a-priori bound
|fl(XY) - XY| <= gamma_n |X||Y| with gamma_n = n u / (1 - n u), u = 2^-53, in any summation order and
with or without fused multiply-add (Higham, "Accuracy and Stability of Numerical Algorithms", ch. 3).
``ArbBalls`` holds python-flint ``arb_mat`` and is the slower audit path. Both enclose the exact result.
"""

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np

UNIT = 2.0**-53
# Floor for absolute errors from underflow: far above n * 2^-1074, far below any bound that matters.
TINY = 1e-290
# Radii are computed in float64 themselves; this factor covers the relative error of doing so, for
# inner dimensions up to 2^30.
INFLATE = 1.0 + 2.0**-20
ARB_BITS = 128
# Assumed bound on the error of NumPy's float64 exp, in units in the last place. NumPy documents
# less than 1 for its own kernels and up to 4 for vendor ones; the Arb path assumes nothing.
EXP_ULPS = 4


def gamma(n: int) -> float:
    """Higham's gamma_n, rounded up."""
    return n * UNIT / (1 - n * UNIT) * INFLATE


def up(x: float) -> float:
    """The next float64 above ``x``."""
    return math.nextafter(x, math.inf)


def down(x: float) -> float:
    """The next float64 below ``x``."""
    return math.nextafter(x, -math.inf)


class Balls(abc.ABC):
    """A matrix known entrywise up to a radius; both operands of a product use the same arithmetic."""

    @staticmethod
    @abc.abstractmethod
    def exact(matrix: np.ndarray) -> "Balls":
        """Float64 numbers taken as exact."""

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    @abc.abstractmethod
    def transposed(self) -> Any:
        """The transposed matrix."""

    @abc.abstractmethod
    def __matmul__(self, other: Any) -> Any: ...

    @abc.abstractmethod
    def __sub__(self, other: Any) -> Any: ...

    @abc.abstractmethod
    def scale_rows(self, factors: np.ndarray) -> Any:
        """Multiply row i by the exact number ``factors[i]``."""

    @abc.abstractmethod
    def row_sums(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds on sum_j |x_ij| for each row i."""

    @abc.abstractmethod
    def entry_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Entrywise lower and upper bounds."""

    def norm(self) -> float:
        """An upper bound on the l_inf -> l_inf operator norm (largest absolute row sum)."""
        return float(self.row_sums()[1].max())


@dataclass(frozen=True, eq=False)
class FloatBalls(Balls):
    """A float64 matrix ``mid`` with entrywise radius ``rad``."""

    mid: np.ndarray
    rad: np.ndarray

    @staticmethod
    def exact(matrix: np.ndarray) -> "FloatBalls":
        return FloatBalls(matrix, np.zeros_like(matrix))

    @property
    def shape(self) -> tuple[int, int]:
        rows, cols = self.mid.shape
        return rows, cols

    def __matmul__(self, other: "FloatBalls") -> "FloatBalls":
        a, b = np.abs(self.mid), np.abs(other.mid)
        mid = self.mid @ other.mid
        rad = gamma(a.shape[1] + 2) * (a @ b)
        if self.rad.any():
            rad = rad + self.rad @ (b + other.rad)
        if other.rad.any():
            rad = rad + a @ other.rad
        return FloatBalls(mid, rad * INFLATE + TINY)

    def __sub__(self, other: "FloatBalls") -> "FloatBalls":
        mid = self.mid - other.mid
        return FloatBalls(mid, (self.rad + other.rad + 2 * UNIT * np.abs(mid)) * INFLATE + TINY)

    def scale_rows(self, factors: np.ndarray) -> "FloatBalls":
        mid = factors[:, None] * self.mid
        rad = np.abs(factors)[:, None] * self.rad + 2 * UNIT * np.abs(mid)
        return FloatBalls(mid, rad * INFLATE + TINY)

    @property
    def transposed(self) -> "FloatBalls":
        return FloatBalls(self.mid.T, self.rad.T)

    def row_sums(self) -> tuple[np.ndarray, np.ndarray]:
        n = self.mid.shape[1]
        absolute = np.abs(self.mid)
        slack = gamma(n + 2) * absolute.sum(1)
        upper = (absolute + self.rad).sum(1) * _sum_factor(n) + TINY
        lower = np.maximum(absolute - self.rad, 0).sum(1) - slack - TINY
        return np.maximum(lower, 0), upper

    def entry_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        pad = self.rad + 2 * UNIT * (np.abs(self.mid) + self.rad) + TINY
        return self.mid - pad, self.mid + pad


def _sum_factor(n: int) -> float:
    """Covers the relative error of summing ``n`` non-negative floats, one addition each."""
    return 1 + 2 * gamma(n + 2)


@dataclass(frozen=True, eq=False)
class ArbBalls(Balls):
    """An ``arb_mat`` at 128 bits."""

    mat: flint.arb_mat

    @staticmethod
    def exact(matrix: np.ndarray) -> "ArbBalls":
        rows, cols = matrix.shape
        return ArbBalls(flint.arb_mat(rows, cols, [flint.arb(float(x)) for x in matrix.ravel()]))

    @property
    def shape(self) -> tuple[int, int]:
        return self.mat.nrows(), self.mat.ncols()

    def __matmul__(self, other: "ArbBalls") -> "ArbBalls":
        return ArbBalls(self.mat * other.mat)

    def __sub__(self, other: "ArbBalls") -> "ArbBalls":
        return ArbBalls(self.mat - other.mat)

    def scale_rows(self, factors: np.ndarray) -> "ArbBalls":
        rows, cols = self.shape
        scaled = [self.mat[i, j] * flint.arb(float(factors[i])) for i in range(rows) for j in range(cols)]
        return ArbBalls(flint.arb_mat(rows, cols, scaled))

    @property
    def transposed(self) -> "ArbBalls":
        return ArbBalls(self.mat.transpose())

    def row_sums(self) -> tuple[np.ndarray, np.ndarray]:
        rows, cols = self.shape
        sums = [sum((abs(self.mat[i, j]) for j in range(cols)), flint.arb(0)) for i in range(rows)]
        return (
            np.array([max(down(float(x.lower())), 0.0) for x in sums]),
            np.array([up(float(x.upper())) for x in sums]),
        )

    def entry_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        rows, cols = self.shape
        entries = [self.mat[i, j] for i in range(rows) for j in range(cols)]
        lower = np.array([down(float(x.lower())) for x in entries]).reshape(rows, cols)
        upper = np.array([up(float(x.upper())) for x in entries]).reshape(rows, cols)
        return lower, upper


def exact_in(arb: bool) -> Callable[[np.ndarray], Balls]:
    """How to take float64 numbers as exact balls in the chosen arithmetic."""
    return ArbBalls.exact if arb else FloatBalls.exact
