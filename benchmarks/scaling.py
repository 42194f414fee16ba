"""How cost and memory grow with n, rank, dimension, lanes, devices and precision; peers in the same run.

Run: ``python benchmarks/scaling.py [--preset smoke|small|paper] [--only n,lanes] [--budget SECONDS]``.
Every point is measured in a fresh process. Rows go to ``results.parquet`` in ``--out``
(default ``benchmarks/results/scaling``), with a figure and a report; ``--only`` measures some sections and
keeps the rows of the others; ``--budget`` starts no point later than that. On an accelerator run
``device.sh``.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import Progress

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "experiments"))

import _lab  # noqa: E402  # pyright: ignore[reportMissingImports]
from _scaling_report import draw, write  # noqa: E402

COLUMNS = (
    *("section", "preset", "series", "task", "n", "rank", "d", "lanes", "devices", "steps"),
    *("seconds", "cpu_seconds", "compile_seconds", "peak_mb", "device_peak_mb"),
    *("low", "high", "value", "peer_seconds", "text"),
)
# The heads of the table in results/rank.md.
TABLE = [f"layer {layer} head {head}" for layer in range(6) for head in (0, 5, 11)]
SIZES: dict[str, dict[str, Any]] = {
    "smoke": {
        "n": [16, 32, 48],
        "bracket": [12],
        "streamed": [],
        "ranks": (32, [2, 4, 8]),
        "lanes": (16, [1, 4, 8], 5),
        "devices": [2],
        "dimensions": ([1], [1, 2, 4]),
        "precision": (["layer 5 head 11"], [2], "fast"),
        "effort": ["fast"],
        "peers": (2.0, 1, [4], 1),
    },
    "small": {
        "n": [64, 128, 256, 512],
        "bracket": [32, 64, 128],
        "streamed": [1024, 2048, 4096],
        "ranks": (256, [4, 8, 16, 32, 64]),
        "lanes": (64, [1, 4, 16, 64, 256], 100),
        "devices": [1, 2, 4, 8],
        "dimensions": ([1, 2, 4, 8, 16], [2, 4, 8, 16, 32]),
        "precision": (["layer 3 head 5", "layer 0 head 5", "layer 5 head 0"], [1, 2, 4, 8, 16, 32], "fast"),
        "effort": ["fast", "normal"],
        "peers": (60.0, 4, [10, 12], 16),
    },
    "paper": {
        "n": [64, 128, 256, 512, 1024],
        "bracket": [32, 64, 128, 256],
        "streamed": [1024, 2048, 4096, 8192, 16384],
        "ranks": (256, [4, 8, 16, 32, 64, 128]),
        "lanes": (64, [1, 4, 16, 64, 256, 1024], 100),
        "devices": [1, 2, 4, 8],
        "dimensions": ([1, 2, 4, 8, 16, 32], [2, 4, 8, 16, 32, 64]),
        "precision": (TABLE, [1, 2, 4, 8, 16, 32], "fast"),
        "effort": ["fast", "normal", "thorough"],
        "peers": (60.0, 8, [10, 12, 14], 64),
    },
    "accelerator": {  # what "paper" means there
        "n": [64, 256, 1024, 2048, 4096],
        "bracket": [64, 256],
        "streamed": [],
        "ranks": (1024, [8, 32, 128]),
        "lanes": (64, [1, 16, 64, 256, 1024, 4096], 200),
        "devices": [1, 2, 4, 8],
        "dimensions": ([2, 8, 32], [8, 64]),
        "precision": (["layer 3 head 5"], [1, 2, 4, 8, 16, 32], "fast"),
        "effort": ["fast", "normal"],
        "peers": (30.0, 4, [10], 16),
    },
}
Point = tuple[str, str, dict[str, Any], dict[str, str]]


def points(preset: str, accelerator: bool, here: int) -> list[Point]:
    """(section, task, arguments, environment) of every point; ``here`` is the number of devices."""
    size = SIZES["accelerator" if accelerator and preset == "paper" else preset]
    found: list[Point] = []
    common = {"rank": 8, "lanes": 4, "steps": 50}
    for n in size["n"]:
        for kind in ("lower", "upper"):
            for precision in ("float32", "float64"):
                found.append(("n", "search", {"kind": kind, "n": n, "precision": precision, **common}, {}))
    found += [("bracket", "bracket", {"n": n}, {}) for n in size["bracket"]]
    found += [("streamed", "streamed", {"n": n, "beta": 8.0, "eps": 0.2}, {}) for n in size["streamed"]]
    n, values = size["ranks"]
    found.append(("rank", "ranks", {"n": n, "values": values, "lanes": 4, "steps": 50}, {}))
    n, values, steps = size["lanes"]
    shape = {"n": n, "rank": n // 4, "steps": steps}
    # On a CPU every core is a device, as on the command line.
    cores = {} if accelerator else as_devices(os.cpu_count() or 1)
    found += [
        ("lanes", "lanes", {**shape, "values": values, "precision": precision}, cores)
        for precision in ("float32", "float64")
    ]
    for count in size["devices"]:
        if not accelerator or count <= here:
            flags = {} if accelerator else as_devices(count)
            more = {"count": count, "lanes": 64, "steps": 4 * steps}
            found.append(("devices", "devices", {**shape, **more}, flags))
    fits, radii = size["dimensions"]
    found.append(("d", "dimensions", {"fits": fits, "radii": radii}, {}))
    heads, values, effort = size["precision"]
    for some in (heads[i : i + 6] for i in range(0, len(heads), 6)):
        found.append(("precision", "precision", {"heads": some, "values": values, "effort": effort}, {}))
    found.append(("precision", "agreement", {"head": heads[0], "values": values}, {}))
    arguments = {"head": heads[0], "eps": [0.05, 0.1, 0.2, 0.5]}
    found += [("effort", "effort", {**arguments, "names": [name]}, cores) for name in size["effort"]]
    limit, rank, dims, starts = size["peers"]
    arguments = {"limit": limit, "rank": rank, "dims": dims, "fit_starts": starts}
    found.append(("peers", "peers", arguments, {}))
    return found


def as_devices(count: int) -> dict[str, str]:
    """The environment in which JAX sees this many CPU devices."""
    return {"XLA_FLAGS": f"--xla_force_host_platform_device_count={count}"}


def measure(point: Point, preset: str, limit: float) -> list[dict[str, Any]]:
    """The rows of one point, from a fresh process."""
    section, task, arguments, environment = point
    command = [sys.executable, __file__, "--point", json.dumps([task, arguments])]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=limit, env={**os.environ, **environment}
    )
    if done.returncode:
        raise RuntimeError(f"{task} {arguments} failed:\n{done.stderr[-2000:]}")
    rows = json.loads(done.stdout.strip().splitlines()[-1])
    return [{"section": section, "preset": preset, **row} for row in rows]


def run_point(text: str) -> int:
    """In the fresh process: measure and print JSON."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from _scaling_points import TASKS

    task, arguments = json.loads(text)
    print(json.dumps(TASKS[task](**arguments)))
    return 0


def earlier(path: Path, sections: set[str]) -> list[dict[str, Any]]:
    """Rows of these sections from an earlier run."""
    if not path.exists():
        return []
    return [row for row in pq.read_table(path).to_pylist() if row["section"] in sections]


def main(argv: list[str] | None = None) -> int:
    if argv is None and "--point" in sys.argv:
        return run_point(sys.argv[sys.argv.index("--point") + 1])

    def add(parser: argparse.ArgumentParser) -> None:
        parser.set_defaults(out=HERE / "results" / "scaling")
        parser.add_argument("--only", help="sections, separated by commas")
        parser.add_argument("--budget", type=float, default=float("inf"), help="seconds")

    run = _lab.start("scaling", str(__doc__), argv=argv, add=add)
    known = sorted({section for section, *_ in points(run.preset, False, 1)})
    sections = set(run.more.only.split(",")) if run.more.only else set(known)
    if not sections <= set(known):
        raise SystemExit(f"--only takes {', '.join(known)}, got {run.more.only}.")
    # In a process of its own: this one must not hold an accelerator.
    (start,) = measure(("start", "idle", {}, {}), run.preset, 120)
    todo = points(run.preset, start["text"] != "cpu", start["devices"])
    todo = [p for p in todo if p[0] in sections]
    rows, begin, skipped = [start], time.perf_counter(), []
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("points", total=len(todo))
        for point in todo:
            left = run.more.budget - (time.perf_counter() - begin)
            try:
                rows += measure(point, run.preset, min(max(left, 1.0), 1e6)) if left > 0 else []
                reason = "" if left > 0 else "no time left"
            except subprocess.TimeoutExpired:
                reason = "no time left"
            except RuntimeError as error:  # the other points still count
                reason = "failed"
                console.print(str(error), style="red", markup=False)
            if reason:
                skipped.append(f"{point[1]} {point[2]} ({reason})")
            bar.advance(task)
    rows += earlier(run.out / "results.parquet", set(known) - sections)
    rows = [{c: row.get(c) for c in COLUMNS} for row in rows]
    run.facts["command"] = "python benchmarks/scaling.py " + " ".join(sys.argv[1:] if argv is None else argv)
    presets = {row["section"]: row["preset"] for row in rows if row["section"] != "start"}
    run.facts["sections"] = "; ".join(f"{s}: --preset {p} --only {s}" for s, p in sorted(presets.items()))
    run.save(rows, draw(rows), write(rows, skipped))
    return int(any(text.endswith("(failed)") for text in skipped))


if __name__ == "__main__":
    sys.exit(main())
