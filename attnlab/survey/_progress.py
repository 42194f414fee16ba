"""Progress of a survey on stderr: a bar on a terminal, a line now and then elsewhere."""

import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ._cells import Matrix
from ._run import Watcher
from ._solve import Solved

QUIET = 30.0  # seconds between lines where there is no terminal


class Pace:
    """Cells per second and the time left, from what was finished since the first matrix was.

    The first one is left out because it contains compilation; matrices of other shapes count by the
    number of their entries times the rank, which is what a step of the search costs.
    """

    def __init__(self, todo: Sequence[Matrix], now: float):
        self.left = sum(map(work, todo))
        self.cells = 0
        self.since = now
        self.done = 0.0
        self.first = True

    def advance(self, solved: Solved, now: float) -> None:
        """One matrix was finished."""
        self.left -= work(solved.matrix)
        if self.first:
            self.first, self.since = False, now
            return
        self.cells += len(solved.cells)
        self.done += work(solved.matrix)
        self.elapsed = now - self.since

    def __str__(self) -> str:
        if not self.done or self.elapsed <= 0:
            return "estimating"
        pace = f"{self.cells / self.elapsed:.2g} cells/s"
        if self.left < 1:
            return pace
        remaining = duration(self.left * self.elapsed / self.done)
        return f"{pace}, about {remaining} left"


class Bar(Watcher):
    """Shows progress while it is used as a context."""

    def __init__(self, console: Console):
        self.console = console
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("cells, {task.fields[pace]}"),
            TimeElapsedColumn(),
        )
        self.progress = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
        self.task = self.progress.add_task("surveying", total=None, pace="starting")

    def __enter__(self) -> "Bar":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def start(self, todo: Sequence[Matrix], stored: int) -> None:
        new = sum(len(m.settings.eps) for m in todo)
        self.total, self.finished = stored + new, stored
        self.pace = Pace(todo, time.monotonic())
        self.said = time.monotonic()
        self.progress.update(self.task, total=self.total, completed=stored, pace=str(self.pace))
        if stored:
            self.note(f"{stored:,} of {self.total:,} cells are stored already")

    def advance(self, solved: Solved) -> None:
        now = time.monotonic()
        self.pace.advance(solved, now)
        self.finished += len(solved.cells)
        self.progress.update(self.task, completed=self.finished, pace=str(self.pace))
        for problem in {cell["problem"] for cell in solved.cells} - {None}:
            self.note(f"{solved.matrix}: {problem}")
        if not self.console.is_terminal and (now - self.said > QUIET or self.finished == self.total):
            self.said = now
            self.note(f"{self.finished:,} of {self.total:,} cells, {self.pace}")

    def note(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)


def work(matrix: Matrix) -> float:
    """Cost of a matrix up to a constant: entries times full rank."""
    rows, columns = matrix.logits.shape
    return float(rows * columns * min(rows, columns))


def duration(seconds: float) -> str:
    """
    >>> duration(42), duration(150), duration(9000)
    ('42 s', '2.5 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
