"""The work of a survey: one matrix in, its cells and certificates out. Runs wherever an engine puts it."""

import functools
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from ..certify import Certificate
from ..rank import ErrorProfile, Logits, focused_profile
from ._baselines import baselines
from ._cells import Matrix, cell_id
from ._schema import SCHEMA

PROGRAM = "jit(_run)"  # how JAX names the compiled searches
RESULTS = [field.name for field in SCHEMA if field.nullable]


@dataclass(frozen=True, eq=False)
class Solved:
    """Results for one matrix.

    Attributes:
        matrix: what was solved.
        cells: one row per tolerance, named as in ``SCHEMA``.
        certificates: by file name; detached, their subject is ``matrix.subject()``.
        solver_seconds: spent in the bracket search. seconds: with the baselines.
        compile_seconds, compilations: spent on compiling the search, and for how many programs.
        process: number of the process that did the work.
    """

    matrix: Matrix
    cells: list[dict[str, Any]]
    certificates: dict[str, Certificate]
    solver_seconds: float
    seconds: float
    compile_seconds: float
    compilations: int
    process: int


def solve(matrix: Matrix, report: Callable[[str], None] | None = None) -> Solved:
    """Brackets at every tolerance, with the baselines that stand beside them.

    A matrix that cannot be searched (NaN, a row masked throughout) gets cells without numbers and the
    reason in ``problem``: one bad head does not end a survey.
    """
    compiled = _compiled()
    seconds_before, count_before = compiled.seconds, compiled.count
    started = time.perf_counter()
    settings = matrix.settings
    profile, problem = None, None
    try:
        with jax.enable_x64(settings.precision == "float64"):
            profile = focused_profile(
                Logits(matrix.subject()),
                settings.eps,
                key=matrix.seed,
                effort=settings.effort,
                precision=settings.precision,
                report=report,
            )
    except ValueError as error:
        problem = str(error)
    searched = time.perf_counter()
    compile_seconds = compiled.seconds - seconds_before
    common = {
        **_labels(matrix),
        **dict.fromkeys(RESULTS),
        "problem": problem,
        "seconds": searched - started,
        "compile_seconds": compile_seconds,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    cells = [{**common, "cell": cell_id(matrix.id, e), "eps": e} for e in settings.eps]
    certificates: dict[str, Certificate] = {}
    if profile is not None:
        beside = baselines(matrix.subject(), settings.eps)
        for cell, other in zip(cells, beside, strict=True):
            certificates |= _ends(cell, profile)
            cell |= other
    return Solved(
        matrix,
        cells,
        certificates if settings.certificates else {},
        searched - started,
        time.perf_counter() - started,
        compile_seconds,
        compiled.count - count_before,
        os.getpid(),
    )


def _labels(matrix: Matrix) -> dict[str, Any]:
    rows, columns = matrix.logits.shape
    names = ("search", "model", "revision", "layer", "head", "window", "digest", "beta")
    labels = {name: getattr(matrix, name) for name in names}
    return {"matrix": matrix.id, **labels, "rows": rows, "columns": columns}


def _ends(cell: dict[str, Any], profile: ErrorProfile) -> dict[str, Certificate]:
    """Fill both ends of a cell in; their certificates by file name."""
    bracket = profile.bracket(cell["eps"])
    cell |= {"lower": bracket.lower, "upper": bracket.upper, "closed": bracket.closed}
    cell["lane_steps"] = int(profile.cost["lane_steps"])
    found = {}
    for end, certificate in (("lower", bracket.lower_certificate), ("upper", bracket.upper_certificate)):
        if certificate is None:  # rank 0 needs no proof from below
            continue
        name = f"{certificate.kind}-k{certificate.claim['rank']}.npz"
        found[name] = certificate.detach()
        cell |= {f"{end}_error": certificate.claim["error"], f"{end}_kind": certificate.kind}
        cell[f"{end}_certificate"] = f"certificates/{cell['search']}/{name}"
    return found


@dataclass
class _Compiled:
    """Programs of the search compiled in this process so far."""

    seconds: float = 0.0
    count: int = 0

    def __call__(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event.endswith("backend_compile_duration") and kwargs.get("fun_name") == PROGRAM:
            self.seconds += duration_secs
            self.count += 1


@functools.cache
def _compiled() -> _Compiled:
    listener = _Compiled()
    jax.monitoring.register_event_duration_secs_listener(listener)
    return listener
