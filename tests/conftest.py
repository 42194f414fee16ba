"""Hostile defaults for every test: float64, no silent promotion, warnings are errors (pyproject)."""

import os

# Eight host devices, so that sharded code is exercised on any machine. Must precede the JAX import.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
).strip()

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")

settings.register_profile(
    "attnlab", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("attnlab")


@pytest.fixture
def rng() -> np.random.Generator:
    """A seeded NumPy generator: tests are deterministic."""
    return np.random.default_rng(0)
