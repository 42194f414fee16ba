"""The box on which a fit is judged."""

import math

import equinox as eqx
import numpy as np


class Box(eqx.Module):
    """All queries with ``|q_j| <= radius`` for ``j < dim``.

    Arguments:
        radius: positive and finite; ``math.inf`` means all of R^dim, where only bounds exist, no fits.
        dim: at least 1.

    Raises:
        ValueError: a radius or dimension out of range.

    >>> Box(4, 3)
    Box(|q_j| <= 4, dim=3)
    """

    radius: float = eqx.field(static=True)
    dim: int = eqx.field(static=True)

    def __init__(self, radius: float, dim: int):
        try:
            self.radius = float(radius)
        except (TypeError, ValueError):
            raise ValueError(f"radius must be a positive number, got {radius!r}.") from None
        if not self.radius > 0:
            raise ValueError(f"radius must be positive, got {radius!r}.")
        if isinstance(dim, bool) or not isinstance(dim, int | np.integer) or dim < 1:
            raise ValueError(f"dim must be a positive integer, got {dim!r}.")
        self.dim = int(dim)

    def __repr__(self) -> str:
        return f"Box(|q_j| <= {self.radius:g}, dim={self.dim})"

    @property
    def finite(self) -> bool:
        """False for all of R^dim."""
        return math.isfinite(self.radius)

    def grid(self, per_axis: int) -> np.ndarray:
        """(per_axis^dim, dim) points of an even grid that includes the faces."""
        axis = np.linspace(-self.radius, self.radius, per_axis)
        return np.stack(np.meshgrid(*[axis] * self.dim, indexing="ij"), -1).reshape(-1, self.dim)
