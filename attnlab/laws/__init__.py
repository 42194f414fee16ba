"""Scaling laws of the approximate rank: analytic brackets, sampled instances, slope fits."""

from ._slope import SlopeFit as SlopeFit
from ._slope import fit_slope as fit_slope
from ._sphere import SphereBracket as SphereBracket
from ._sphere import sphere_bracket as sphere_bracket

__all__ = ["SlopeFit", "SphereBracket", "fit_slope", "sphere_bracket"]
