"""What a run will use is said, and an idle accelerator is noticed."""

import os
import subprocess
import sys

import numpy as np
import pytest

from attnlab import _devices, cli
from attnlab._devices import describe, fallback


def test_facts_are_plain_data():
    facts = describe()
    assert facts["platform"] == "cpu"
    assert facts["lanes_per_chunk"] == facts["lanes_per_device"] * len(facts["devices"])
    assert facts["compilation_cache"] == "off"
    assert facts["fallback"] == "none"


@pytest.mark.parametrize(
    ("plugin", "said"),
    [("jax-cuda13-plugin", "JAX_PLATFORMS=cuda to see why"), ("libtpu", "JAX_PLATFORMS=tpu to see why")],
)
def test_a_plugin_that_fell_back_to_the_cpu(plugin, said, monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(_devices, "_installed", lambda package: package == plugin)
    assert f"{plugin} is installed but JAX fell back" in fallback()
    assert said in fallback()
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")  # the CPU is meant
    assert fallback() is None


def test_a_gpu_without_a_plugin_is_said_where_people_look(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(_devices, "_installed", lambda package: False)
    monkeypatch.setattr(_devices, "NVIDIA", tmp_path)
    assert 'pip install "attnlab[cuda]"' in fallback()
    np.save(tmp_path / "a.npy", np.eye(3))
    assert cli.main(["bracket", str(tmp_path / "a.npy"), "--eps", "0.5", "--effort", "fast", "--json"]) == 0
    assert "an NVIDIA driver is here" in capsys.readouterr().err
    assert cli.main(["info"]) == 0
    assert "NVIDIA" in capsys.readouterr().out


def test_applications_use_every_core():
    code = "import jax; from attnlab._devices import use_every_core as u; u(); print(len(jax.devices())); u()"
    environment = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.stdout.strip() == str(os.cpu_count()), done.stderr
