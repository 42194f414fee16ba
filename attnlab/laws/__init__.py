"""Scaling laws of the approximate rank: analytic brackets, sampled instances, slope fits."""

from ._ball import BallBracket as BallBracket
from ._ball import ball_bracket as ball_bracket
from ._ball import ball_points as ball_points
from ._finite import PointAttention as PointAttention
from ._points import PointBracket as PointBracket
from ._points import point_bracket as point_bracket
from ._points import sphere_points as sphere_points
from ._slope import SlopeFit as SlopeFit
from ._slope import fit_slope as fit_slope
from ._sphere import SphereBracket as SphereBracket
from ._sphere import sphere_bracket as sphere_bracket

__all__ = [
    "BallBracket",
    "PointAttention",
    "PointBracket",
    "SlopeFit",
    "SphereBracket",
    "ball_bracket",
    "ball_points",
    "fit_slope",
    "point_bracket",
    "sphere_bracket",
    "sphere_points",
]
