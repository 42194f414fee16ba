"""The intrinsic interaction of an attention matrix, and full-support blocks of masked ones."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True, eq=False)
class Block:
    """A full-support block of an attention matrix, rows renormalised.

    Attributes:
        attention: shape (m', N'), strictly positive, rows sum to 1.
        first_query: the block holds the queries ``first_query, ..., m - 1``.
        last_key: and the keys ``0, ..., last_key``.
    """

    attention: np.ndarray
    first_query: int
    last_key: int

    def __repr__(self) -> str:
        m, n = self.attention.shape
        return f"Block({m} queries from {self.first_query}, {n} keys up to {self.last_key})"


def double_centre(matrix: ArrayLike) -> np.ndarray:
    """P_m X P_N: subtract row means and column means. Shape (m, N), float64."""
    x = np.asarray(matrix, np.float64)
    x = x - x.mean(-1, keepdims=True)
    return x - x.mean(-2, keepdims=True)


def intrinsic(attention: ArrayLike) -> np.ndarray:
    """The intrinsic interaction C = P_m (log A) P_N of [I]: log A up to row and column constants.

    Row constants are lost in the softmax and column constants are key weights, so C is what is left
    of the logits once every gauge freedom of queries and keys is removed.

    Arguments:
        attention: shape (m, N), strictly positive rows (probabilities, or any positive multiple).

    Returns:
        float64 array of shape (m, N); rows and columns sum to zero. Unit: nats.

    Raises:
        ValueError: not a matrix, not finite, or with entries <= 0 (masked attention has no C on the
            whole square: take ``full_support_block`` first).

    >>> q, k = np.array([[1.0], [-1.0]]), np.array([[2.0], [0.0]])
    >>> logits = q @ k.T + np.array([[5.0], [7.0]])  # row constants do not matter
    >>> weights = np.exp(logits)
    >>> intrinsic(weights / weights.sum(1, keepdims=True)).round(12).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    a = _matrix(attention, "attention")
    if (a <= 0).any():
        row, column = np.argwhere(a <= 0)[0]
        raise ValueError(
            f"attention has {int((a <= 0).sum())} entries <= 0, the first at ({row}, {column}); log A needs "
            f"full support: pass {_advice(a)}."
        )
    return double_centre(np.log(a))


def _advice(a: np.ndarray) -> str:
    """Which block to take instead, by name if there is one."""
    try:
        block = full_support_block(a)
    except ValueError:
        return "softmax probabilities without zeros (no block of late queries and early keys is free of them)"
    return (
        "full_support_block(attention).attention instead, here queries "
        f"{block.first_query}..{len(a) - 1} and keys 0..{block.last_key}"
    )


def full_support_block(attention: ArrayLike, first_query: int | None = None) -> Block:
    """The block of late queries and early keys on which a causal matrix has no zeros.

    Query t sees key s <= t, so queries >= t0 and keys <= t0 are all mutually visible. Rows are
    renormalised: conditioning on the kept keys only adds row constants to log A. What is computed
    from the block is a statement about the block.

    Arguments:
        attention: shape (m, N), non-negative.
        first_query: t0; by default the one with the largest block.

    Raises:
        ValueError: there is no such block, or ``first_query`` does not give one.

    >>> causal = np.tril(np.ones((5, 5))) / np.arange(1, 6)[:, None]
    >>> full_support_block(causal)
    Block(3 queries from 2, 3 keys up to 2)
    """
    a = _matrix(attention, "attention")
    if (a < 0).any():
        raise ValueError("attention has negative entries: pass softmax probabilities.")
    # Keys before the first zero of any later query.
    leading = np.where((a > 0).all(1), a.shape[1], (a <= 0).argmax(1))
    width = np.minimum.accumulate(leading[::-1])[::-1]
    if first_query is None:
        first_query = int(((a.shape[0] - np.arange(a.shape[0])) * width).argmax())
    if not isinstance(first_query, int | np.integer):
        raise ValueError(f"first_query must be an integer, got {first_query!r}.")
    if not 0 <= first_query < a.shape[0] or width[first_query] == 0:
        raise ValueError(
            f"There is no full-support block from query {first_query}: choose a later query, "
            "and order keys so that the masked ones come last."
        )
    block = a[first_query:, : width[first_query]]
    return Block(block / block.sum(1, keepdims=True), int(first_query), int(width[first_query]) - 1)


def _matrix(value: ArrayLike, name: str) -> np.ndarray:
    """A finite, non-empty float64 matrix."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} must be a matrix: its rows differ in length.") from None
    if array.ndim != 2 or array.size == 0 or array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be a non-empty real matrix, got {array.dtype} {array.shape}.")
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has NaN or infinite entries: drop or mask those rows first.")
    return array
