"""Slopes of power laws, with bootstrap intervals."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class SlopeFit:
    """A fitted power law y = exp(intercept) x^slope with a bootstrap interval on the slope.

    The interval describes the scatter of these points around a line. It is an estimate, not a
    certificate, even where each y is certified.
    """

    slope: float
    low: float
    high: float
    intercept: float
    level: float

    def __repr__(self) -> str:
        percent = 100 * self.level
        return f"SlopeFit({self.slope:.4f}, {percent:g}% bootstrap [{self.low:.4f}, {self.high:.4f}])"


def fit_slope(
    x: ArrayLike, y: ArrayLike, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> SlopeFit:
    """Least-squares slope of log y against log x, with a residual bootstrap.

    The design is fixed (a grid of temperatures), so residuals, scaled by 1/sqrt(1 - leverage), are
    resampled and not pairs (Davison and Hinkley, "Bootstrap Methods and their Application", 6.2).

    Arguments:
        x, y: shape (n,), positive, n >= 3, at least two distinct x. Fit each end of a bracket by
        itself.
        level: coverage of the interval, in (0, 1).
        resamples: bootstrap samples.
        seed: seed of NumPy's default generator.

    Raises:
        ValueError: too few points, or values that are not positive and finite.

    >>> fit_slope([1, 2, 4, 8], [3, 6, 12, 24])
    SlopeFit(1.0000, 95% bootstrap [1.0000, 1.0000])
    """
    try:
        x, y = np.asarray(x, float), np.asarray(y, float)
    except (TypeError, ValueError):
        raise ValueError("x and y must be vectors of real numbers.") from None
    if x.shape != y.shape or x.ndim != 1 or x.size < 3 or np.unique(x).size < 2:
        raise ValueError(
            f"x and y must be vectors of one length >= 3 with two distinct x; "
            f"got shapes {x.shape} and {y.shape}."
        )
    for name, values in (("x", x), ("y", y)):
        if not np.all(np.isfinite(values) & (values > 0)):
            raise ValueError(f"{name} must be positive and finite: drop points where the rank is 0.")
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level}; use 0.95.")
    if resamples < 1:
        raise ValueError(f"resamples must be >= 1, got {resamples}; use 2000.")
    u, v = np.log(x), np.log(y)
    centred = u - u.mean()
    row = centred / (centred @ centred)
    slope = row @ v
    residual = v - v.mean() - slope * centred
    leverage = 1 / u.size + centred * row
    scaled = residual / np.sqrt(np.maximum(1 - leverage, 1e-12))
    scaled -= scaled.mean()
    draws = np.random.default_rng(seed).choice(scaled, (resamples, u.size)) @ row
    low, high = slope + np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return SlopeFit(float(slope), float(low), float(high), float(v.mean() - slope * u.mean()), float(level))
