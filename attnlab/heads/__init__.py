"""Softmax heads and sums of heads, as Equinox modules and pure functions."""

from ._families import product_head as product_head
from ._families import random_head as random_head
from ._families import sigmoid_sum as sigmoid_sum
from ._families import sigmoids as sigmoids
from ._head import Head as Head
from ._head import HeadSum as HeadSum
from ._head import head_value as head_value
from ._head import softmax_weights as softmax_weights

__all__ = [
    "Head",
    "HeadSum",
    "head_value",
    "product_head",
    "random_head",
    "sigmoid_sum",
    "sigmoids",
    "softmax_weights",
]
