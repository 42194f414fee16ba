"""Many lanes at once in a fresh process with a time limit: a thread-pool deadlock must not hang CI."""

import subprocess
import sys

import pytest

PROGRAM = """
import numpy as np
from attnlab.interaction import _radius, profile
lanes = int({lanes})
rng = np.random.default_rng(0)
problems = [
    _radius._reduced(rng.normal(size=(24, 4)), rng.normal(size=(20, 4))) for _ in range(lanes)
]
designs = _radius.solve_designs(problems, 1e-3)
assert all(d.upper <= 1.001 * d.lower for d in designs)
p = np.exp(rng.normal(size=(lanes + 2, 40)))
found = profile(p / p.sum(1, keepdims=True), 0.5, range(1, lanes + 1), steps=20)
assert found.kappa.shape == (lanes,)
print("done")
"""


@pytest.mark.parametrize("lanes", [13, 32])
def test_many_lanes_finish(lanes):
    command = [sys.executable, "-c", PROGRAM.format(lanes=lanes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "done", done.stderr
