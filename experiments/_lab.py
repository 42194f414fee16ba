"""What every experiment script shares: arguments, provenance, and the files it writes."""

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure

from attnlab._clock import Clock

HERE = Path(__file__).parent
PRESETS = ("smoke", "small", "paper")
LIBRARIES = (
    "attnlab",
    "jax",
    "jaxlib",
    "equinox",
    "optax",
    "numpy",
    "scipy",
    "python-flint",
    "highspy",
)


@dataclass(frozen=True)
class Run:
    """The arguments of one run of an experiment script, and the clock that started with it.

    ``more`` holds the arguments that a script adds to the common ones, ``facts`` what else belongs into
    its provenance.
    """

    name: str
    preset: str
    out: Path
    seed: int
    clock: Clock
    more: argparse.Namespace = field(default_factory=argparse.Namespace)
    facts: dict[str, Any] = field(default_factory=dict)

    def provenance(self) -> dict[str, Any]:
        """Arguments, commit, versions and device: enough to repeat the run."""
        import jax

        return {
            "experiment": self.name,
            "preset": self.preset,
            "seed": self.seed,
            **self.facts,
            "commit": _commit(),
            "python": platform.python_version(),
            "versions": {lib: importlib.metadata.version(lib) for lib in LIBRARIES},
            "device": f"{jax.devices()[0].platform}: {jax.devices()[0].device_kind}",
            "cpu_count": os.cpu_count(),
            "seconds": round(self.clock.seconds, 2),
            "compile_seconds": round(self.clock.compile_seconds, 2),
        }

    def save(self, rows: Sequence[dict[str, Any]], figure: Figure, report: str) -> None:
        """Write ``results.parquet``, ``figure.svg/png`` and ``report.md``, each by rename."""
        self.out.mkdir(parents=True, exist_ok=True)
        provenance = self.provenance()
        table = pa.Table.from_pylist(list(rows)).replace_schema_metadata({"attnlab": json.dumps(provenance)})
        _by_rename(self.out / "results.parquet", lambda path: pq.write_table(table, path))
        for suffix in ("svg", "png"):
            _by_rename(
                self.out / f"figure.{suffix}",
                lambda path, s=suffix: figure.savefig(path, format=s, dpi=150, bbox_inches="tight"),
            )
        plt.close(figure)
        made = "\n".join(f"- {k}: {v}" for k, v in provenance.items())
        text = f"{report.rstrip()}\n\n![figure](figure.svg)\n\n## How this was made\n\n{made}\n"
        _by_rename(self.out / "report.md", lambda path: path.write_text(text))
        print(
            f"wrote results.parquet, figure.svg, figure.png, report.md in {self.out}",
            file=sys.stderr,
        )


def start(
    name: str,
    description: str,
    default: str = "small",
    argv: list[str] | None = None,
    add: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
) -> Run:
    """Parse ``--preset --out --seed`` and what ``add`` adds; results go to ``experiments/results/NAME``."""
    parser = argparse.ArgumentParser(prog=f"{name}.py", description=description)
    parser.add_argument("--preset", choices=PRESETS, default=default)
    parser.add_argument("--out", type=Path, default=HERE / "results" / name)
    parser.add_argument("--seed", type=int, default=0)
    add(parser)
    args = parser.parse_args(argv)
    return Run(name, args.preset, args.out, args.seed, Clock(), args)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A GitHub-flavoured table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        run = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=True)
        return run.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _by_rename(path: Path, write: Callable[[Path], Any]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
