"""Smoke runs of the interaction and law experiments: files appear and the numbers are in order."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

SCRIPTS = Path(__file__).parents[2] / "experiments"


@pytest.mark.parametrize("name", ["sphere_law", "ball_law", "interaction_law", "gauge"])
def test_smoke_preset(name, tmp_path):
    command = [sys.executable, f"{name}.py", "--preset", "smoke", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=SCRIPTS, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    table = pq.read_table(tmp_path / "results.parquet")
    assert json.loads(table.schema.metadata[b"attnlab"])["preset"] == "smoke"
    names = {"gauge": ("kappa lower", "kappa upper")}
    ends = names.get(name, ("lower", "upper"))
    for row in table.to_pylist():
        assert row[ends[0]] <= row[ends[1]]
    assert "**Verdict.**" in (tmp_path / "report.md").read_text()
    assert (tmp_path / "figure.svg").stat().st_size > 1000
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_dimension_smoke_preset(tmp_path):
    command = [sys.executable, "dimension.py", "--preset", "smoke", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=SCRIPTS, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = pq.read_table(tmp_path / "results.parquet").to_pylist()
    assert len(rows) == 16
    assert all(0 <= row["svd dimension"] <= 64 for row in rows)
    for name in ("truncated SVD", "row cover", "polynomial features"):
        assert all(1 <= row[name] <= 64 for row in rows)
        assert any(row[name] < 64 for row in rows)
