"""Smoke runs of the experiments on atoms: files appear, brackets are in order, nothing contradicts."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

SCRIPTS = Path(__file__).parents[2] / "experiments"


def run(name, out):
    command = [sys.executable, f"{name}.py", "--preset", "smoke", "--out", str(out)]
    done = subprocess.run(command, cwd=SCRIPTS, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    table = pq.read_table(out / "results.parquet")
    assert json.loads(table.schema.metadata[b"attnlab"])["preset"] == "smoke"
    assert "**Verdict.**" in (out / "report.md").read_text()
    assert (out / "figure.svg").stat().st_size > 1000
    assert (out / "figure.png").stat().st_size > 1000
    return table.to_pylist()


def test_atom_phase(tmp_path):
    rows = run("atom_phase", tmp_path)
    assert all(row["lower"] <= row["upper"] for row in rows)
    exact = [row["upper"] for row in rows if row["kind"] == "fit" and row["m"] == 2 ** row["d"]]
    assert max(exact) < 1e-6
    assert "2 of 2 earlier errors met" in (tmp_path / "report.md").read_text()


def test_distill(tmp_path):
    rows = run("distill", tmp_path)
    assert {row["method"] for row in rows} == {"fit", "subset (OMP)"}
    assert "sampled estimates" in (tmp_path / "report.md").read_text()
