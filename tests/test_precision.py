"""No digits are lost in silence when float64 is off."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab._precision import as_jax, concrete
from attnlab.heads import Head


def test_float64_off_refuses_numpy_float64():
    with jax.enable_x64(False):
        for value in (np.zeros((2, 2)), np.float64(1)):
            with pytest.raises(RuntimeError, match=r'jax.config.update\("jax_enable_x64", True\)'):
                as_jax("keys", value)
        with pytest.raises(RuntimeError, match="values is a NumPy float64"):
            Head([[0.0]], np.ones(1))
        assert as_jax("keys", np.zeros(2, np.float32)).dtype == jnp.float32
        assert as_jax("keys", [0.5, 1]).dtype == jnp.float32
        assert as_jax("keys", np.arange(3)).dtype == jnp.float32
        head = Head([[0.0], [1.0]], [0.0, 1.0])
        assert head([0.5]).dtype == jnp.float32


def test_float64_on_keeps_every_dtype():
    assert as_jax("x", np.zeros(2, np.float32)).dtype == jnp.float32
    assert as_jax("x", np.zeros(2)).dtype == jnp.float64
    assert as_jax("x", [1, 2]).dtype == jnp.float64


def test_concrete_is_none_while_traced():
    seen = []
    jax.jit(lambda x: seen.append(concrete(x)) or x)(jnp.ones(2))
    assert seen == [None]
    np.testing.assert_array_equal(concrete(jnp.ones(2)), [1, 1])


def test_import_flips_nothing():
    code = "import jax, attnlab as al; al.Head; al.heads; c = jax.config; "
    code += "assert not (c.jax_enable_x64 or c.jax_compilation_cache_dir or c.jax_num_cpu_devices > 0)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
