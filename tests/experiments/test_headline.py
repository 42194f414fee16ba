"""The front door in its smoke preset: every claim holds, files appear."""

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

SCRIPTS = Path(__file__).parents[2] / "experiments"


def test_smoke_preset(tmp_path):
    command = [sys.executable, "headline.py", "--preset", "smoke", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=SCRIPTS, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "FAILS" not in done.stdout
    rows = pq.read_table(tmp_path / "results.parquet").to_pylist()
    assert {row["kind"] for row in rows} == {"fusion", "sphere", "learned"}
    assert all(row["lower"] <= row["upper"] for row in rows)
    assert all(row["proved"] for row in rows if row["kind"] == "learned")
    assert "**Verdict.**" in (tmp_path / "report.md").read_text()
    assert (tmp_path / "figure.svg").stat().st_size > 1000
