"""Turning user input into JAX arrays without losing digits in silence.

With JAX's float64 switched off (its default), ``jnp.asarray`` of a NumPy float64 array quietly
returns float32. attnlab never flips that switch; it refuses the array and names the fix.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


def as_jax(name: str, value: Any) -> Array:
    """``value`` as a floating-point JAX array of its own precision.

    Integers and Python numbers take JAX's default float dtype; NumPy and JAX floats keep theirs.

    Arguments:
        name: how the caller names the argument, for the error message.
        value: a JAX or NumPy array, a tracer, or (nested) Python numbers.

    Raises:
        RuntimeError: a NumPy float64 (or wider) array while float64 is off in JAX.
        ValueError: not a rectangular array of real numbers.

    >>> as_jax("keys", [[0, 1], [2, 3]]).shape
    (2, 2)
    """
    if isinstance(value, np.ndarray | np.generic):
        wide = value.dtype.kind in "fc" and value.dtype.itemsize > 4
        if wide and jnp.result_type(float) != jnp.float64:
            raise RuntimeError(
                f"{name} is a NumPy {value.dtype} array but float64 is off in JAX, so digits would "
                'be lost: run jax.config.update("jax_enable_x64", True) first, or pass float32.'
            )
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a rectangular array of numbers ({error}).") from None
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise ValueError(f"{name} is complex; pass real numbers.")
    if not jnp.issubdtype(array.dtype, jnp.floating):
        return array.astype(jnp.result_type(float))
    return array


def concrete(array: Array) -> np.ndarray | None:
    """The values of ``array``, or ``None`` while it is being traced (jit, vmap, grad)."""
    try:
        return np.asarray(array)
    except jax.errors.TracerArrayConversionError:
        return None


def search_dtype(precision: str | None) -> Any:
    """The dtype of a search: float32 unless float64 is asked for.

    Float32 loses at most 2% on an end, in 0.7 of the time (``benchmarks/scaling.py --only precision``),
    because what a search proposes is refined, completed and certified in float64 on the host.

    Raises:
        ValueError: another name, or float64 while it is off in JAX.

    >>> search_dtype(None)
    <class 'numpy.float32'>
    """
    if precision not in (None, "float32", "float64"):
        raise ValueError(f'precision must be "float32", "float64" or None, got {precision!r}.')
    if precision != "float64":
        return np.float32
    if jnp.result_type(float) != jnp.float64:
        raise ValueError(
            'precision="float64" needs float64 in JAX: run jax.config.update("jax_enable_x64", True) first.'
        )
    return np.float64
