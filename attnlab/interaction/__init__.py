"""Interaction geometry: what part of the logits matters, what a part costs, how large it is."""

from ._dimension import polynomial_factors as polynomial_factors
from ._dimension import row_cover as row_cover
from ._dimension import svd_dimension as svd_dimension
from ._floor import tau_floor as tau_floor
from ._gauges import Coordinates as Coordinates
from ._gauges import key_weight_gauge as key_weight_gauge
from ._gauges import linear_gauge as linear_gauge
from ._gauges import row_scalar_gauge as row_scalar_gauge
from ._gauges import translation_gauge as translation_gauge
from ._intrinsic import Block as Block
from ._intrinsic import double_centre as double_centre
from ._intrinsic import full_support_block as full_support_block
from ._intrinsic import intrinsic as intrinsic
from ._profile import Profile as Profile
from ._profile import Retained as Retained
from ._profile import profile as profile
from ._radius import FactorRadius as FactorRadius
from ._radius import Gauge as Gauge
from ._radius import factor_radius as factor_radius
from ._residual import column_gauge as column_gauge
from ._residual import residual as residual
from ._residual import smooth_residual as smooth_residual
from ._residual import tau as tau

__all__ = [
    "Block",
    "Coordinates",
    "FactorRadius",
    "Gauge",
    "Profile",
    "Retained",
    "column_gauge",
    "double_centre",
    "factor_radius",
    "full_support_block",
    "intrinsic",
    "key_weight_gauge",
    "linear_gauge",
    "polynomial_factors",
    "profile",
    "residual",
    "row_cover",
    "row_scalar_gauge",
    "smooth_residual",
    "svd_dimension",
    "tau",
    "tau_floor",
    "translation_gauge",
]
