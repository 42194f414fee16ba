"""The engine for many machines: every matrix is a Ray task, retried when its worker is lost.

Only the process that started the survey writes its store, so a task that runs twice is stored once.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any

from .._extras import require
from ._cells import Matrix
from ._solve import Solved, solve

RETRIES = 5  # for a matrix whose worker died
AHEAD = 2  # tasks handed to Ray per processor: enough to keep workers busy, few enough to stay in memory


def run_ray(
    matrices: Sequence[Matrix],
    *,
    address: str | None = None,
    workers: int | None = None,
    num_gpus: float = 0,
) -> Iterator[Solved]:
    """Results in the order in which tasks end.

    Arguments:
        address: of a running cluster ("auto" for the one on this machine, "HOST:PORT", or
            "ray://HOST:PORT"); default: start one here for this survey. attnlab must be installed on it.
        workers: number of workers of a cluster started here; default one per processor.
        num_gpus: share of a GPU that every task reserves; 0 runs on CPUs.

    Raises:
        ModuleNotFoundError: Ray is not installed.
        ValueError: no cluster at the address, or no machine of it has the resources asked for.
        ChildProcessError: a matrix killed its worker ``RETRIES`` + 1 times.
    """
    ray = require("ray", "ray", "--engine ray")
    if address is not None and workers is not None:
        raise ValueError("workers is for a cluster started here: leave it out with an address.")
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, address, workers)
    try:
        gpus = ray.cluster_resources().get("GPU", 0)
        if num_gpus > gpus:
            raise ValueError(f"num_gpus is {num_gpus:g} per matrix, and the cluster has {gpus:g} GPUs.")
        yield from _run(ray, matrices, num_gpus)
    finally:
        if ours:
            ray.shutdown()


def _connect(ray: Any, address: str | None, workers: int | None) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        # "local" starts a cluster even where the environment names another one.
        options |= {"address": "local", "num_cpus": workers or os.cpu_count(), "include_dashboard": False}
    else:
        options |= {"address": address}
    try:
        ray.init(**options)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        where = f"at {address}" if address else "here"
        reason = " ".join(str(error).split())
        raise ValueError(f"no Ray cluster could be reached or started {where} ({reason}).") from None


def _run(ray: Any, matrices: Sequence[Matrix], num_gpus: float) -> Iterator[Solved]:
    options: dict[str, Any] = {"max_retries": RETRIES, "num_cpus": 1, "num_gpus": num_gpus}
    if 0 < num_gpus < 1:  # JAX would take three quarters of the memory for each of the tasks on a GPU
        fraction = {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.75 * num_gpus:.3f}"}
        options["runtime_env"] = {"env_vars": fraction}
    task = ray.remote(**options)(solve)
    slots = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
    waiting, running = iter(matrices), {}
    while True:
        for matrix in waiting:
            running[task.remote(matrix)] = matrix
            if len(running) >= slots:
                break
        if not running:
            return
        done, _ = ray.wait(list(running), num_returns=1)
        matrix = running.pop(done[0])
        try:
            yield ray.get(done[0])
        except ray.exceptions.RayTaskError:
            raise  # an error of the solver, not of the cluster
        except ray.exceptions.RayError as error:
            raise ChildProcessError(
                f"{matrix} lost its worker {RETRIES + 1} times ({type(error).__name__}); it may need more "
                "memory than there is. What is finished is stored: continue with --resume."
            ) from None
