"""Hostile defaults for every test: float64, no silent promotion, warnings are errors (pyproject)."""

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.devices()  # JAX starts with one CPU device, whatever commands under test would choose

settings.register_profile(
    "attnlab", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("attnlab")


@pytest.fixture
def rng() -> np.random.Generator:
    """A seeded NumPy generator: tests are deterministic."""
    return np.random.default_rng(0)
