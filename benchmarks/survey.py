"""Speed of surveys on host devices and Ray workers, and a survey killed at random moments.

Run: ``python benchmarks/survey.py [--only devices|workers|kill]``. Every row is a fresh process (devices are
fixed when JAX starts) that surveys the same MiniLM heads twice, each time into an empty store: the first
run compiles, the second is timed. Matrices are 32 x 32 (the first tokens), so that a row takes seconds.
Host devices share the processors of the machine, so more of them than processors only show what spreading
costs. The kill test resumes a survey that is killed with SIGKILL at random moments and compares it, cell
for cell, with one that ran through.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console

DATA = Path(__file__).parents[1] / "tests" / "data" / "minilm_heads.npz"
DEVICES = (1, 2, 4, 8)
WORKERS = (1, 2)
EPS = (0.2, 0.5)
SIZE = 32
KILL_EPS = (0.1, 0.3)


def matrices_of(count: int) -> tuple:
    """The plan over the first SIZE tokens of the first heads of the test data."""
    from attnlab.learned import CapturedHead, load_file
    from attnlab.survey import Settings, plan

    settings = Settings(EPS)
    heads = [
        CapturedHead(h.model, h.revision, h.layer, h.head, 0, h.logits[:SIZE, :SIZE])
        for h in list(load_file(DATA))[:count]
    ]
    return plan(heads, [1.0], settings), settings


def measure(engine: str, count: int, matrices: int) -> None:
    """In a child process: the outcome of the second of two surveys, as JSON."""
    from dataclasses import asdict

    import jax

    from attnlab.survey import read_cells, run

    planned, settings = matrices_of(matrices)
    if engine == "ray":
        import ray

        ray.init(address="local", num_cpus=count, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        first = run(planned, Path(folder, "first"), settings, engine=engine)
        second = run(planned, Path(folder, "second"), settings, engine=engine)
        cells = read_cells(Path(folder, "second"))
        ends = [cells["lower"].to_pylist(), cells["upper"].to_pylist()]
    devices = len(jax.devices())
    more = {"compiled": first.compilations, "ends": ends, "devices": devices, "shares": second.shares()}
    print(json.dumps({**asdict(second), **more}))


def child(engine: str, count: int, matrices: int) -> dict:
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    if engine == "local":
        environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={count}"
    command = [sys.executable, __file__, "--child", engine, str(count), "--matrices", str(matrices)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def speed(engine: str, counts: tuple[int, ...], matrices: int, said: Console) -> None:
    """Cells per second on so many devices or workers."""
    columns = (
        "devices or workers | cells | seconds | cells/s | against 1 | search | baselines | rest | programs"
    )
    print(f"| engine | {columns} |\n|---{'|---' * (columns.count('|') + 1)}|")
    ends, base = [], 0.0
    for count in counts:
        said.print(f"{engine} {count}")
        found = child(engine, count, matrices)
        rate = found["cells"] / found["seconds"]
        base = base or rate
        shares = " | ".join(f"{x:.1%}" for x in found["shares"])
        print(
            f"| {engine} | {count} | {found['cells']} | {found['seconds']:.1f} | {rate:.2f} "
            f"| {rate / base:.2f}x | {shares} | {found['compiled']} |",
            flush=True,
        )
        ends.append(found["ends"])
    same = all(e == ends[0] for e in ends)
    print(f"\nBrackets are {'the same' if same else 'NOT the same'} in all rows.\n")


KILLED = """
import sys
sys.path.insert(0, {here!r})
import survey
from attnlab.survey import run
planned, settings = survey.toy()
run(planned, sys.argv[1], settings, resume=True, flush=0)
"""


def toy() -> tuple:
    """Many small matrices that need the search."""
    from attnlab.learned import CapturedHead
    from attnlab.survey import Settings, plan

    rng = np.random.default_rng(0)
    logits = [2 * rng.normal(size=(8, 3)) @ rng.normal(size=(3, 8)) for _ in range(60)]
    heads = [CapturedHead("toy", "0" * 64, 0, i, 0, z.astype(np.float32)) for i, z in enumerate(logits)]
    settings = Settings(KILL_EPS)
    return plan(heads, [1.0], settings), settings


def kill(times: int, said: Console) -> None:
    """SIGKILL after random times, then a last run to the end."""
    from attnlab.survey import TIMING, read_cells, run

    planned, settings = toy()
    with tempfile.TemporaryDirectory() as folder:
        whole, out = Path(folder, "whole"), Path(folder, "killed")
        run(planned, whole, settings)
        chance, stored = random.Random(0), [0]
        code = KILLED.format(here=str(Path(__file__).parent))
        count = lambda: len(list((out / "cells").glob("*.parquet"))) if out.exists() else 0
        for index in range(times):
            process = subprocess.Popen([sys.executable, "-c", code, str(out)], stderr=subprocess.DEVNULL)
            # One kill in five falls into the start, the others into the work: soon after a new part file.
            while index % 5 and count() == stored[-1] and process.poll() is None:
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 1.5))
            if process.poll() is not None:
                break  # it finished
            process.kill()
            process.wait()
            stored.append(count())
            said.print(f"killed with {stored[-1]} of {len(planned)} matrices stored")
        last = run(planned, out, settings, resume=True)
        same = [read_cells(path).drop_columns(list(TIMING)) for path in (whole, out)]
        equal = same[0].equals(same[1])
    print(
        f"## Killed and resumed\n\n{len(planned)} matrices of 8 x 8 at eps {KILL_EPS}, killed "
        f"{len(stored) - 1} times; matrices stored after every kill: {', '.join(map(str, stored[1:]))}. "
        f"The last run computed {last.computed} of {last.cells} cells. The dataset "
        f"{'equals' if equal else 'DIFFERS FROM'} that of a run that was not killed, cell for cell."
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--matrices", type=int, default=8)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--only", choices=("devices", "workers", "kill"))
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        measure(args.child[0], int(args.child[1]), args.matrices)
        return 0
    said = Console(stderr=True)
    if args.only in (None, "devices"):
        speed("local", DEVICES, args.matrices, said)
    if args.only in (None, "workers"):
        speed("ray", WORKERS, args.matrices, said)
    if args.only in (None, "kill"):
        kill(args.kills, said)
    return 0


if __name__ == "__main__":
    sys.exit(main())
