"""Compile time is told apart from run time, counted once, per thread."""

import threading
import time

import jax
import jax.numpy as jnp
import numpy as np

from attnlab import _clock
from attnlab._clock import Clock
from attnlab.rank import error_profile


def test_compiling_is_counted_and_running_is_not():
    step = jax.jit(lambda x: jnp.sin(x) @ x)
    x = jnp.ones((5, 5))
    clock = Clock()
    step(x).block_until_ready()
    first = clock.compile_seconds
    assert clock.compilations == 1
    assert 0 < first <= clock.seconds
    step(x).block_until_ready()
    time.sleep(0.01)
    assert clock.compilations == 1
    assert clock.compile_seconds == first
    assert clock.seconds > first + 0.01


def test_nested_spans_count_once():
    clock = Clock()
    time.sleep(0.02)
    for name, duration in (("jaxpr_trace_duration", 0.004), ("jaxpr_trace_duration", 0.01)):
        _clock._note("/jax/core/compile/" + name, duration)
    _clock._note("/jax/other", 5.0)
    np.testing.assert_allclose(clock.compile_seconds, 0.01, atol=1e-3)
    assert clock.compilations == 0


def test_threads_do_not_see_each_other():
    clock = Clock()
    other = threading.Thread(target=lambda: jax.jit(lambda x: x - 3)(jnp.ones(3)))
    other.start()
    other.join()
    assert clock.compilations == 0


def test_the_cost_of_a_profile_says_both():
    a = np.random.default_rng(0).dirichlet(np.ones(5), 11)  # a shape no other test compiles
    first, second = (error_profile(a, [2], effort="fast").cost for _ in range(2))
    assert 0 < first["compile_seconds"] < first["seconds"]
    assert second["compilations"] == 0 == second["compile_seconds"]
    assert second["lane_steps"] == first["lane_steps"]
