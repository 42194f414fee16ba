"""What a survey will take: counted exactly, timed from what is stored or from one matrix of every shape."""

import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from ._cells import Matrix, Settings, buckets
from ._schema import SCHEMA
from ._solve import solve
from ._store import MANIFEST, check_settings, read_cells


@dataclass(frozen=True)
class Bucket:
    """All matrices of one shape.

    Attributes:
        shape: (m, N). matrices, cells: in the survey. stored: cells that are done.
        seconds: for one matrix, without compilation; compile_seconds: once per process.
        source: what the time was measured on.
    """

    shape: tuple[int, int]
    matrices: int
    cells: int
    stored: int
    seconds: float
    compile_seconds: float
    source: str


@dataclass(frozen=True)
class Forecast:
    """What remains to be done. ``seconds`` is for one process; ``memory_mb`` the peak of one."""

    buckets: list[Bucket]
    cells: int
    stored: int
    seconds: float
    memory_mb: float


def forecast(
    matrices: Sequence[Matrix],
    out: Path,
    settings: Settings,
    report: Callable[[str], None] = lambda line: None,
) -> Forecast:
    """Predict time and memory of what is not stored yet. Nothing is written.

    Stored results of the same shape give the time where there are any; otherwise one matrix is solved
    on this machine (and thrown away). A matrix may take a few times longer than another.

    Raises:
        ValueError: a store that does not fit the settings.
    """
    table = SCHEMA.empty_table()
    if (out / MANIFEST).exists():
        check_settings(out, settings)
        table = read_cells(out)
    stored = set(table["matrix"].to_pylist())
    found, memory = [], [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]
    for shape, group in buckets(matrices).items():
        todo = [m for m in group if m.id not in stored]
        same = table.filter((pc.field("rows") == shape[0]) & (pc.field("columns") == shape[1]))
        if same.num_rows:
            each = np.asarray(same["seconds"]) - np.asarray(same["compile_seconds"])
            seconds, compiling = float(each.mean()), float(np.asarray(same["compile_seconds"]).max())
            memory.append(float(np.asarray(same["peak_memory_mb"]).max()))
            source = f"{same.num_rows} stored cells"
        else:
            report(f"solving one of {len(group)} matrices of {shape[0]} x {shape[1]} to time it")
            solved = solve(todo[0])
            seconds, compiling = solved.seconds - solved.compile_seconds, solved.compile_seconds
            memory.append(solved.cells[0]["peak_memory_mb"])
            source = "one matrix solved here"
        per = len(settings.eps)
        done = len(group) - len(todo)
        found.append(Bucket(shape, len(group), per * len(group), per * done, seconds, compiling, source))
    left = lambda b: (b.cells - b.stored) // len(settings.eps)
    return Forecast(
        found,
        sum(b.cells for b in found),
        sum(b.stored for b in found),
        sum(left(b) * b.seconds + (b.compile_seconds if left(b) else 0) for b in found),
        max(memory),
    )
