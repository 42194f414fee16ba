"""Lanes over devices: the same results on 1, 2 and 8, on one process and on two, and clear refusals."""

import socket
import subprocess
import sys
from dataclasses import dataclass

import jax
import numpy as np
import pytest

from attnlab._lanes import WIDTH, lane_devices, run_lanes, use_devices, width

SOLVERS = """
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
from attnlab._lanes import use_devices
from attnlab.fusion import _distill, _fit_search
from attnlab.interaction import _radius, _search
from attnlab.rank._lower import search_lower
from attnlab.rank._upper import search_upper
rng = np.random.default_rng(0)
a = rng.dirichlet(np.ones(7), 6)
lanes = 5
x, y = rng.normal(size=(lanes, 6, 2)), rng.normal(size=(lanes, 7, 2))
heads = _fit_search.Lanes(x, x[..., 0], rng.normal(size=(lanes, 6, 1)), np.ones((lanes, 6), bool))
points = rng.normal(size=(9, 2))
designs = [_radius._reduced(i, j) for i, j in zip(x, y)]
ranks, starts = np.full(lanes, 2), np.arange(lanes)

def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])

def results():
    shape = (ranks, starts, 30, np.float64)
    yield flat(search_lower(a, *shape, np.random.default_rng(1), 4)[0])
    yield flat(search_upper(a, *shape, np.random.default_rng(1), 4)[0])
    c, gauge, mask = np.log(a), np.zeros((lanes, 7)), np.ones((lanes, 2))
    yield flat(_search.search(c, x, y, gauge, mask, np.full(lanes, 0.5), steps=9, dtype=float))
    yield flat(tuple(_fit_search.search(heads, points, points[:, :1], 4, np.float64).lanes[:3]))
    yield flat([(d.left, d.right, d.lower) for d in _radius.solve_designs(designs, 1e-3)])
    data = (points, points[:, :1])
    yield flat(_distill._descend(heads, data, data, np.ones(3), 0.01, 5)[1])
"""

DEVICES = """
assert len(jax.devices()) == 8
whole = list(results())
for count in (1, 2):
    with use_devices(jax.devices()[:count]):
        for one, other in zip(results(), whole):
            tol = 1e-3 if one.dtype == np.float32 else 1e-9  # float32 rounding grows over the steps
            np.testing.assert_allclose(one, other, rtol=tol, atol=1e-3 * tol)
print("same")
"""

PROCESSES = (
    """
import sys
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"localhost:{sys.argv[1]}", 2, int(sys.argv[2]))
"""
    + """
import numpy as np
from attnlab._lanes import lane_devices, use_devices
from attnlab.rank import FactoredAttention, _streamed, bracket
from attnlab.rank._upper import search_upper
assert jax.process_count() == 2 and len(jax.devices()) == 2 and len(lane_devices()) == 1
a = np.random.default_rng(0).dirichlet(np.ones(7), 6)

def run():
    rng = np.random.default_rng(1)
    return search_upper(a, np.full(7, 2), np.arange(7), 30, np.float32, rng, 4)[0]

alone = run()  # every process for itself
with use_devices(jax.devices()):  # both together
    together = run()
for one, other in zip(alone, together):
    for x, y in zip(one, other):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)

# Streamed attention: blocks of rows are spread, sums over rows meet. 61 rows do not divide by 2.
_streamed.DENSE = 0
_streamed.BUDGETS["fast"] = _streamed.Budget(3, 2, 24, 100, 1)
x = np.random.default_rng(0).normal(size=(61, 2)).astype(np.float32)
big = FactoredAttention(x, x[:50], mask=np.random.default_rng(1).random((61, 50)) > 0.2)
alone = bracket(big, 0.1, effort="fast")
with use_devices(jax.devices()):
    together = bracket(big, 0.1, effort="fast")
for end in ("lower_certificate", "upper_certificate"):
    one, other = (getattr(b, end).claim for b in (alone, together))
    assert one["rank"] == other["rank"], (one, other)
    assert abs(one["error"] - other["error"]) < 0.05 * one["error"], (one, other)
print("same")
"""
)


@dataclass(frozen=True)
class FakeDevice:
    platform: str


def program(lane, weight, power):
    return lane["x"] * weight + power, lane["flag"]


@pytest.mark.parametrize("count", [1, WIDTH["cpu"], WIDTH["cpu"] + 3])
def test_any_number_of_lanes(count, rng):
    lanes = {"x": rng.normal(size=(count, 3)), "flag": np.arange(count) % 2 == 0}
    moved, flags = run_lanes(program, lanes, np.arange(3.0), np.int32(2), dtype=np.float64)
    np.testing.assert_allclose(moved, lanes["x"] * np.arange(3) + 2)
    np.testing.assert_array_equal(flags, lanes["flag"])
    assert run_lanes(program, lanes, np.arange(3.0), np.int32(2), dtype=np.float32)[0].dtype == np.float32


def test_one_trace_whatever_the_number_of_lanes():
    traces = []

    def counted(lane, shift):
        traces.append(1)
        return lane + shift

    for count in (1, 3, 50):
        run_lanes(counted, np.zeros((count, 2)), np.float64(count), dtype=np.float64)
    assert len(traces) == 1


def test_large_lanes_run_in_narrow_chunks():
    assert width() == width(1000) == WIDTH["cpu"]
    assert width(2**29) == 1
    assert width(2**26) == 2


def test_choice_of_devices():
    (only,) = jax.local_devices()
    assert lane_devices() == (only,)
    with jax.default_device(only):
        assert lane_devices() == (only,)
    with jax.default_device("cpu"):
        assert lane_devices() == (only,)
    with use_devices([only]):
        assert lane_devices() == (only,)
    with pytest.raises(ValueError, match="one or more different devices"), use_devices([]):
        pass
    with pytest.raises(ValueError, match="one or more different devices"), use_devices([only, only]):
        pass
    mixed = [FakeDevice("cpu"), FakeDevice("gpu")]
    with pytest.raises(ValueError, match=r"mixes cpu and gpu.*one platform"), use_devices(mixed):
        pass


def test_every_solver_agrees_on_1_2_and_8_devices():
    """5 lanes do not divide by 2 or 8."""
    code = "import os; os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=8'\n"
    command = [sys.executable, "-c", code + SOLVERS + DEVICES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.stdout.strip() == "same", done.stderr


def test_two_processes_share_lanes_and_rows():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    commands = [[sys.executable, "-c", PROCESSES, port, str(i)] for i in range(2)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(command, **pipes) for command in commands]
    try:
        for process in running:
            out, error = process.communicate(timeout=120)
            assert out.strip().endswith("same"), error
    finally:
        for process in running:
            process.kill()
