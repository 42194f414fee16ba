"""Smoke runs of the fusion experiments: files appear, brackets are in order, known minima lie in them."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

SCRIPTS = Path(__file__).parents[2] / "experiments"


@pytest.mark.parametrize("name", ["separation", "fusion_census"])
def test_smoke_preset(name, tmp_path):
    command = [sys.executable, f"{name}.py", "--preset", "smoke", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=SCRIPTS, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    table = pq.read_table(tmp_path / "results.parquet")
    assert json.loads(table.schema.metadata[b"attnlab"])["preset"] == "smoke"
    rows = [row for row in table.to_pylist() if row["lower"] is not None]
    for row in rows:
        assert row["vertices"] <= row["lower"] <= row["upper"] <= row["product"]
        if row.get("known"):
            assert row["lower"] <= row["known"] <= row["upper"]
    if name == "fusion_census":
        families = {row["family"] for row in rows}
        closed = {f for f in families if all(r["lower"] == r["upper"] for r in rows if r["family"] == f)}
        assert len(closed) >= 10
    assert "**Verdict.**" in (tmp_path / "report.md").read_text()
    assert (tmp_path / "figure.svg").stat().st_size > 1000
    assert (tmp_path / "figure.png").stat().st_size > 1000
