"""Running: killed and resumed, on one device and on eight, the dataset is the same."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from attnlab.learned import CapturedHead
from attnlab.survey import Settings, Watcher, plan, read_cells, run, solve, verify_store

from .helpers import cells_of, dense_heads, line_heads

HERE = Path(__file__).parent


def child(code, out, *flags, **environment):
    """A process that surveys into ``out``."""
    program = f"import sys; sys.path.insert(0, {str(HERE)!r})\nfrom helpers import *\n{code}"
    environment = {**os.environ, **environment}
    return subprocess.Popen(
        [sys.executable, "-c", program, str(out), *flags],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


KILLED = """
from attnlab.survey import *
settings = Settings((0.1, 0.3))
run(plan(line_heads(24), [1.0], settings), sys.argv[1], settings, resume=True, flush=0)
"""


def test_kill_and_resume_gives_the_same_dataset(tmp_path):
    """SIGKILL leaves whole part files; what follows computes the rest and nothing twice."""
    settings = Settings((0.1, 0.3))
    matrices = plan(line_heads(24), [1.0], settings)
    run(matrices, tmp_path / "whole", settings)
    out, stored = tmp_path / "killed", 0
    for wanted in (1, 5):
        process = child(KILLED, out)
        count = lambda: len(list((out / "cells").glob("*.parquet"))) if out.exists() else 0
        while count() < stored + wanted and process.poll() is None:
            time.sleep(0.002)
        process.kill()
        assert process.communicate()[1] == ""
        assert process.returncode == -signal.SIGKILL
        stored = count()
    assert stored < 24
    outcome = run(matrices, out, settings, resume=True)
    assert outcome.computed == 2 * (24 - stored)
    assert cells_of(out).equals(cells_of(tmp_path / "whole"))
    assert not list(out.rglob("*.tmp"))


DEVICES = """
import jax
assert len(jax.devices()) == int(sys.argv[2])
from attnlab.survey import *
settings = Settings((0.2,), precision="float64")
run(plan(dense_heads(), [1.0], settings), sys.argv[1], settings)
"""


def test_results_do_not_depend_on_devices_order_or_company(tmp_path):
    """Eight host devices in one process, one device in another order here."""
    flags = "--xla_force_host_platform_device_count=8"
    process = child(DEVICES, tmp_path / "eight", "8", XLA_FLAGS=flags)
    settings = Settings((0.2,), precision="float64")
    matrices = plan(dense_heads(), [1.0], settings)
    outcome = run(matrices[::-1], tmp_path / "one", settings)
    assert 1 <= outcome.compilations <= 4
    assert process.communicate()[1] == ""
    one, eight = (cells_of(tmp_path / name) for name in ("one", "eight"))
    for name in ("cell", "lower", "upper", "lane_steps"):
        assert one[name].equals(eight[name])
    for name in ("lower_error", "upper_error"):
        np.testing.assert_allclose(one[name].to_numpy(), eight[name].to_numpy(), rtol=1e-3)
    assert set(verify_store(tmp_path / "eight").values()) == {""}
    alone = solve(matrices[0])
    assert alone.compilations == 0
    row = read_cells(tmp_path / "one").to_pylist()[0]
    assert alone.cells[0]["lower_error"] == row["lower_error"]
    assert alone.cells[0]["upper_error"] == row["upper_error"]


def test_float32_search_gives_float64_proofs(tmp_path):
    import jax

    settings = Settings((0.3,), precision="float32")
    run(plan(dense_heads(1), [1.0], settings), tmp_path / "s", settings)
    assert set(verify_store(tmp_path / "s").values()) == {""}
    assert jax.config.read("jax_enable_x64")  # as the tests set it


def test_a_bad_head_does_not_end_the_survey(tmp_path):
    bad = CapturedHead("bad", "0" * 64, 0, 0, 0, np.full((8, 8), np.nan, np.float32))
    settings = Settings((0.5,))
    outcome = run(plan([bad, *line_heads(1)], [1.0], settings), tmp_path / "s", settings)
    assert (outcome.computed, outcome.problems) == (2, 1)
    rows = {row["model"]: row for row in read_cells(tmp_path / "s").to_pylist()}
    assert "NaN" in rows["bad"]["problem"]
    assert rows["bad"]["upper"] is None
    assert rows["lines"]["problem"] is None
    assert len(verify_store(tmp_path / "s")) == 1


def test_masked_heads_are_surveyed(tmp_path):
    """A causal mask: exact zeros, so there is no intrinsic interaction."""
    logits = np.where(np.tri(6, dtype=bool), dense_heads(1)[0].logits, -np.inf).astype(np.float32)
    head = CapturedHead("causal", "0" * 64, 0, 0, 0, logits)
    settings = Settings((0.5, 1.5), precision="float64")
    run(plan([head], [1.0], settings), tmp_path / "s", settings)
    rows = read_cells(tmp_path / "s").to_pylist()
    assert [row["svd_dimension"] for row in rows] == [None, None]
    assert 1 <= rows[0]["lower"] <= rows[0]["upper"] <= 6
    assert (rows[1]["lower"], rows[1]["upper"]) == (0, 0)
    assert set(verify_store(tmp_path / "s").values()) == {""}


def test_an_interruption_keeps_what_is_finished(tmp_path):
    class Impatient(Watcher):
        def advance(self, solved):
            if solved.matrix.head == 1:
                raise KeyboardInterrupt

    settings = Settings((0.5,))
    matrices = plan(line_heads(4), [1.0], settings)
    with pytest.raises(KeyboardInterrupt):
        run(matrices, tmp_path / "s", settings, watcher=Impatient())
    assert run(matrices, tmp_path / "s", settings, resume=True).computed == 2


def test_unknown_engine(tmp_path):
    settings = Settings((0.5,))
    with pytest.raises(ValueError, match="engine must be local or ray, got 'dask'"):
        run(plan(line_heads(1), [1.0], settings), tmp_path / "s", settings, engine="dask")
    assert not (tmp_path / "s").exists()
