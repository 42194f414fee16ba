"""The Ray engine on a real local cluster of two workers, one of which is killed in mid-run."""

import os
import signal
from types import SimpleNamespace

import pytest

from attnlab.survey import Settings, Watcher, plan, read_cells, run, verify_store
from attnlab.survey import _ray as engine

from .helpers import cells_of, line_heads

ray = pytest.importorskip("ray", reason="needs the extra: pip install 'attnlab[ray]'")
SETTINGS = Settings((0.1, 0.3))
# Ray leaves sockets and log files to the garbage collector, and announces changes of its own defaults.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


class Assassin(Watcher):
    """Kills the worker that delivered the third result: it is at work on another matrix by then."""

    def __init__(self):
        self.processes = []
        self.killed = None

    def advance(self, solved):
        self.processes.append(solved.process)
        if len(self.processes) == 3:
            self.killed = solved.process
            os.kill(self.killed, signal.SIGKILL)


def test_no_cell_is_lost_or_double_when_a_worker_is_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    matrices = plan(line_heads(24, size=16), [1.0], SETTINGS)
    assassin = Assassin()
    outcome = run(matrices, tmp_path / "ray", SETTINGS, engine="ray", workers=2, flush=0, watcher=assassin)
    assert not ray.is_initialized()
    assert outcome.computed == 48
    after = assassin.processes[3:]
    assert set(after) - set(assassin.processes[:3])  # Ray started another worker in its place
    assert os.getpid() not in assassin.processes
    cells = read_cells(tmp_path / "ray")["cell"].to_pylist()
    assert len(cells) == len(set(cells)) == 48
    run(matrices, tmp_path / "local", SETTINGS)
    assert cells_of(tmp_path / "ray").equals(cells_of(tmp_path / "local"))
    assert set(verify_store(tmp_path / "ray").values()) == {""}


def test_bad_input_is_one_sentence(tmp_path, monkeypatch):
    matrices = plan(line_heads(1), [1.0], SETTINGS)
    with pytest.raises(ValueError, match="workers is for a cluster started here"):
        run(matrices, tmp_path / "a", SETTINGS, engine="ray", workers=2, address="auto")
    monkeypatch.setattr(engine, "require", lambda *_: Missing)
    with pytest.raises(ValueError, match="no Ray cluster could be reached or started at nowhere:1"):
        run(matrices, tmp_path / "a", SETTINGS, engine="ray", address="nowhere:1")


def test_a_matrix_that_kills_every_worker_is_named_and_the_rest_is_kept(tmp_path, monkeypatch):
    matrices = plan(line_heads(3), [1.0], SETTINGS)
    monkeypatch.setattr(engine, "require", lambda *_: Deadly)
    with pytest.raises(
        ChildProcessError, match=r"lines 1.0, .* lost its worker 6 times \(WorkerCrashedError\)"
    ):
        run(matrices, tmp_path / "s", SETTINGS, engine="ray")
    monkeypatch.undo()
    assert run(matrices, tmp_path / "s", SETTINGS, resume=True).computed == 2


class Deadly:
    """A Ray whose third task never survives."""

    exceptions = ray.exceptions
    is_initialized = staticmethod(lambda: True)
    cluster_resources = staticmethod(lambda: {"CPU": 1})
    wait = staticmethod(lambda running, num_returns: (running[:1], running[1:]))

    @staticmethod
    def remote(**_):
        """The decorator; its result has ``remote`` too, which hands out the matrix as the reference."""
        return lambda function: SimpleNamespace(remote=lambda matrix: matrix)

    @staticmethod
    def get(matrix):
        if matrix.layer == 1:
            raise ray.exceptions.WorkerCrashedError
        return engine.solve(matrix)


class Missing:
    """A Ray that finds no cluster; the real one tries for a minute."""

    is_initialized = staticmethod(lambda: False)

    @staticmethod
    def init(**_):
        raise ConnectionError("Could not find any running Ray instance")
