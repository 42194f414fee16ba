"""Running a survey: skip what is stored, solve the rest, store it as it comes."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ._cells import Matrix, Settings
from ._local import run_local
from ._ray import run_ray
from ._solve import Solved
from ._store import open_store

FLUSH = 15.0  # seconds of finished work that a kill may cost
ENGINES = ("local", "ray")


class Watcher:
    """Told what happens during a survey; this one keeps silent."""

    def start(self, todo: Sequence[Matrix], stored: int) -> None:
        """The matrices that will be solved, and the number of cells that are stored already."""

    def advance(self, solved: Solved) -> None:
        """One matrix is solved."""

    def note(self, line: str) -> None:
        """Something a person should read."""


@dataclass(frozen=True)
class Outcome:
    """What a survey did.

    Attributes:
        cells: of the survey. computed: of them, in this run. problems: of those, without numbers.
        seconds: of this run, from the plan to the last part file.
        solver_seconds: in bracket searches, summed over processes. work_seconds: with the baselines.
        compile_seconds, compilations: of the searches, summed over processes.
        processes: how many did the work.
    """

    cells: int
    computed: int
    problems: int
    seconds: float
    solver_seconds: float
    work_seconds: float
    compile_seconds: float
    compilations: int
    processes: int

    def shares(self) -> tuple[float, float, float]:
        """Of the time of all processes: search, baselines, and the rest (store, progress, waiting)."""
        busy = self.seconds * max(self.processes, 1)
        search, beside = self.solver_seconds / busy, (self.work_seconds - self.solver_seconds) / busy
        return search, beside, 1 - search - beside


def run(
    matrices: Sequence[Matrix],
    out: str | Path,
    settings: Settings,
    *,
    engine: str = "local",
    resume: bool = False,
    address: str | None = None,
    workers: int | None = None,
    num_gpus: float = 0,
    flush: float = FLUSH,
    watcher: Watcher | None = None,
) -> Outcome:
    """Solve every matrix that is not stored yet.

    Arguments:
        matrices: from ``plan``. settings: the same that the plan was made with.
        out: folder of the store.
        engine: "local" or "ray"; address, workers and num_gpus are for "ray", see ``run_ray``.
        resume: continue a store; without it, one that exists is refused.
        flush: seconds after which finished work is written.
        watcher: told about progress.

    Raises:
        ValueError: an unknown engine, or a store that does not fit, see ``open_store``.
        OSError: the store cannot be written; what was stored before is intact.
        ModuleNotFoundError: the engine needs Ray, which is not installed.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine must be {' or '.join(ENGINES)}, got {engine!r}.")
    watcher = watcher or Watcher()
    started = time.perf_counter()
    solved_so_far: list[Solved] = []
    with open_store(Path(out), settings, resume) as store:
        for path, reason in store.set_aside:
            watcher.note(f"set aside {path}: {reason}; its cells are computed again")
        todo = [m for m in matrices if m.id not in store.finished]
        stored = (len(matrices) - len(todo)) * len(settings.eps)
        watcher.start(todo, stored)
        waiting: list[Solved] = []

        def write() -> None:
            ready = waiting.copy()
            waiting.clear()  # first: what failed to be written is not tried again on the way out
            store.write(ready)

        results: Iterator[Solved] = (
            run_local(todo)
            if engine == "local"
            else run_ray(todo, address=address, workers=workers, num_gpus=num_gpus)
        )
        written = time.perf_counter()
        try:
            for solved in results:
                waiting.append(solved)
                solved_so_far.append(solved)
                if time.perf_counter() - written >= flush:
                    write()
                    written = time.perf_counter()
                watcher.advance(solved)
        finally:
            write()
    cells = [cell for s in solved_so_far for cell in s.cells]
    return Outcome(
        cells=len(matrices) * len(settings.eps),
        computed=len(cells),
        problems=sum(cell["problem"] is not None for cell in cells),
        seconds=time.perf_counter() - started,
        solver_seconds=sum(s.solver_seconds for s in solved_so_far),
        work_seconds=sum(s.seconds for s in solved_so_far),
        compile_seconds=sum(s.compile_seconds for s in solved_so_far),
        compilations=sum(s.compilations for s in solved_so_far),
        processes=len({s.process for s in solved_so_far}),
    )
