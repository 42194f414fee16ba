"""Time spent compiling, told apart from time spent running."""

import threading
import time
from typing import Any

import jax.monitoring

_EVENTS = "/jax/core/compile/"  # tracing, lowering, and the backend's compilation or cache look-up
_PROGRAM = "backend_compile_duration"


class _Thread(threading.local):
    """What this thread has compiled; spans inside other spans count once."""

    def __init__(self) -> None:
        self.spans: list[tuple[float, float]] = []
        self.seconds = 0.0
        self.programs = 0


_thread = _Thread()
_listening = threading.Lock()


class Clock:
    """Seconds since it was made, and how many of them this thread spent tracing and compiling.

    >>> import jax
    >>> clock = Clock()
    >>> _ = jax.jit(lambda x: x + 1)(1.0)
    >>> 0 < clock.compile_seconds <= clock.seconds, clock.compilations
    (True, 1)
    """

    def __init__(self) -> None:
        if _listening.acquire(blocking=False):  # once per process, and not at import
            jax.monitoring.register_event_duration_secs_listener(_note)
        self._begin = time.perf_counter()
        self._compiled, self._programs = _thread.seconds, _thread.programs

    @property
    def seconds(self) -> float:
        """Wall time, compilation included."""
        return time.perf_counter() - self._begin

    @property
    def compile_seconds(self) -> float:
        """Wall time of tracing, lowering and compiling (or loading from the persistent cache)."""
        return _thread.seconds - self._compiled

    @property
    def compilations(self) -> int:
        """Programs compiled or loaded, helpers of a few operations included."""
        return _thread.programs - self._programs

    def cost(self) -> dict[str, float]:
        """All three, by name."""
        return {
            "seconds": self.seconds,
            "compile_seconds": self.compile_seconds,
            "compilations": self.compilations,
        }


def _note(event: str, duration_secs: float, **_: Any) -> None:
    if not event.startswith(_EVENTS):
        return
    end = time.perf_counter()
    begin = end - duration_secs
    while _thread.spans and _thread.spans[-1][0] >= begin:
        inner = _thread.spans.pop()
        _thread.seconds -= inner[1] - inner[0]
    _thread.spans.append((begin, end))
    _thread.seconds += duration_secs
    _thread.programs += event.endswith(_PROGRAM)
