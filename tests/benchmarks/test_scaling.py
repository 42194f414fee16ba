"""The scaling benchmark measures, merges what it measured before, and reads exponents off its rows."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

HERE = Path(__file__).parents[2] / "benchmarks"


def run(*arguments):
    command = [sys.executable, "scaling.py", *map(str, arguments)]
    return subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=200)


def test_one_section_in_its_smoke_preset(tmp_path):
    done = run("--preset", "smoke", "--only", "d", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = pq.read_table(tmp_path / "results.parquet").to_pylist()
    assert {row["section"] for row in rows} == {"start", "d"}
    assert all(row["seconds"] > 0 < row["compile_seconds"] for row in rows if row["section"] == "d")
    report = (tmp_path / "report.md").read_text()
    assert "| factor radius | time | d = 1 .. 4 |" in report
    assert "d: --preset smoke --only d" in report
    assert (tmp_path / "figure.svg").stat().st_size > 1000
    refused = run("--preset", "smoke", "--only", "size", "--out", tmp_path)
    assert refused.returncode != 0
    assert "--only takes bracket, d, devices" in refused.stderr


def test_exponents_are_those_of_the_rows():
    """Rows that follow a law exactly: memory above the start grows like n, time like n^2."""
    code = """
import json, sys
sys.path.insert(0, "../experiments")
from _scaling_report import draw, write
from scaling import COLUMNS
none = dict.fromkeys(COLUMNS)
rows = [none | {"section": "start", "series": "start", "peak_mb": 100.0}]
for n in (4, 1024, 2048, 4096, 8192):
    law = {"seconds": 1e-6 * n**2, "peak_mb": 100 + n / 32, "compile_seconds": 1.0, "low": 3, "high": 4}
    rows.append(none | {"section": "streamed", "series": "streamed bracket", "n": n} | law)
draw(rows)
print(json.dumps(write(rows, ["a point"])))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, timeout=60)
    report = json.loads(done.stdout)
    assert "| streamed bracket | time | n = 1024 .. 8192 | 2.00 | [2.00, 2.00] | 4 |" in report, done.stderr
    assert "| streamed bracket | memory | n = 1024 .. 8192 | 1.00 | [1.00, 1.00] | 4 |" in report
    assert "Not measured: a point." in report
