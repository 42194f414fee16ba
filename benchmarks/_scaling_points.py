"""What ``scaling.py`` measures. Each function is one task, run in a fresh process, and returns rows.

Times are the least of ``REPEATS`` calls after a first one that compiles; the first call's compile time
is a column of its own. Peak memory is that of the process (and of the device where JAX reports it).
"""

import resource
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import attnlab as al
from attnlab import _lanes
from attnlab._clock import Clock
from attnlab._lanes import lane_devices, use_devices
from attnlab.interaction import factor_radius
from attnlab.rank._lower import search_lower
from attnlab.rank._upper import search_upper

REPEATS, ENOUGH = 3, 10.0  # calls, and seconds after which no further call starts
SEARCHES = {"lower": search_lower, "upper": search_upper}
DTYPES = {"float32": np.float32, "float64": np.float64}

Row = dict[str, Any]


def sphere(n: int, d: int = 3, seed: int = 0) -> np.ndarray:
    """(n, d) points of the unit sphere."""
    x = np.random.default_rng(seed).normal(size=(n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def matrix(n: int, beta: float = 16.0) -> np.ndarray:
    x = sphere(n)
    return np.asarray(al.rank.attention(x, x, beta))


def timed(work: Callable[[], Any], repeats: int = REPEATS) -> tuple[Row, Any]:
    """Compile time of a first call, then the least wall and CPU time of some calls; the last result."""
    clock = Clock()
    result = work()
    compiling, seconds, cpu, first = clock.compile_seconds, np.inf, np.inf, time.perf_counter()
    for _ in range(repeats):
        begin, used = time.perf_counter(), time.process_time()
        result = work()
        seconds = min(seconds, time.perf_counter() - begin)
        cpu = min(cpu, time.process_time() - used)
        if time.perf_counter() - first > ENOUGH:
            break
    return {"compile_seconds": compiling, "seconds": seconds, "cpu_seconds": cpu}, result


def memory() -> Row:
    """Peak of this process, and of the first device where JAX counts it, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    stats = lane_devices()[0].memory_stats() or {}
    device = stats.get("peak_bytes_in_use")
    return {"peak_mb": peak, "device_peak_mb": None if device is None else device / 2**20}


def search_row(kind: str, n: int, rank: int, lanes: int, steps: int, precision: str) -> Row:
    """One search of ``lanes`` starts at one rank."""
    a = matrix(n)
    ranks, starts = np.full(lanes, rank), np.arange(lanes) % 4
    arguments = (ranks, starts, steps, DTYPES[precision])
    row, _ = timed(lambda: SEARCHES[kind](a, *arguments, np.random.default_rng(0), rank + 1))
    size = {"n": n, "rank": rank, "lanes": lanes, "steps": steps, "devices": len(lane_devices())}
    return {"series": f"{kind}, {precision}", **size, **row, **memory()}


def idle() -> list[Row]:
    """A process that compiles and runs tiny searches: what the memory of the others starts from."""
    for kind in SEARCHES:
        search_row(kind, 16, 2, 1, 2, "float32")
    here = lane_devices()
    return [{"series": "start", "text": here[0].platform, "devices": len(here), **memory()}]


def search(kind: str, n: int, rank: int, lanes: int, steps: int, precision: str) -> list[Row]:
    """One point; used where peak memory matters."""
    return [search_row(kind, n, rank, lanes, steps, precision)]


def bracket(n: int) -> list[Row]:
    """A whole bracket, search to certificates, of a dense matrix."""
    a = matrix(n)
    row, found = timed(lambda: al.rank.bracket(a, 0.2, effort="fast"), 1)
    return [{"series": "bracket, fast", "n": n, **row, **memory(), "low": found.lower, "high": found.upper}]


def streamed(n: int, beta: float, eps: float) -> list[Row]:
    """A whole bracket of factored attention, whose matrix is never formed (memory limit 1 GB)."""
    x = sphere(n)
    subject = al.rank.FactoredAttention(x, x, beta)
    clock = Clock()
    found = al.rank.bracket(subject, eps, effort="fast", memory_limit=2.0**30)
    row = {"compile_seconds": clock.compile_seconds, "seconds": clock.seconds - clock.compile_seconds}
    return [
        {"series": "streamed bracket", "n": n, **row, **memory(), "low": found.lower, "high": found.upper}
    ]


def ranks(n: int, values: list[int], lanes: int, steps: int) -> list[Row]:
    """Searches at several ranks."""
    return [search_row(kind, n, k, lanes, steps, "float32") for kind in SEARCHES for k in values]


def lanes(n: int, rank: int, values: list[int], steps: int, precision: str) -> list[Row]:
    """Several lane counts, and a program of a single lane without padding."""
    rows = [search_row(kind, n, rank, count, steps, precision) for kind in SEARCHES for count in values]
    platform, padded = lane_devices()[0].platform, dict(_lanes.WIDTH)
    _lanes.WIDTH[platform] = 1
    for kind in SEARCHES:
        row = search_row(kind, n, rank, 1, steps, precision)
        rows.append({**row, "series": f"{kind}, {precision}, unpadded"})
    _lanes.WIDTH.clear()
    _lanes.WIDTH.update(padded)
    return rows


def devices(count: int, n: int, rank: int, lanes: int, steps: int) -> list[Row]:
    """The same lanes on the first ``count`` devices."""
    with use_devices(jax.local_devices()[:count]):
        return [search_row(kind, n, rank, lanes, steps, "float32") for kind in SEARCHES]


def dimensions(fits: list[int], radii: list[int]) -> list[Row]:
    """Fit lanes against the dimension of queries, factor radius against the affine rank."""
    from attnlab.fusion._fit_search import Lanes, search

    rng, rows = np.random.default_rng(0), []
    for d in fits:
        points = rng.normal(size=(1024, d))
        wanted = np.tanh(points @ rng.normal(size=(d, 1)))
        keys, logs = rng.normal(size=(32, 6, d)), np.zeros((32, 6))
        start = Lanes(keys, logs, np.zeros((32, 6, 1)), np.ones((32, 6), bool))
        row, _ = timed(lambda: search(start, points, wanted, 20))  # noqa: B023
        rows.append({"series": "fit, 32 lanes of 6 atoms", "d": d, "lanes": 32, "n": 1024, **row})
    for r in radii:
        x, y = rng.normal(size=(256, r)), rng.normal(size=(256, r))
        row, found = timed(lambda: factor_radius(x, y, tol=1e-3))  # noqa: B023
        rows.append({"series": "factor radius", "d": r, "n": 256, **row, "value": found.relative_gap})
    return rows


def precision(heads: list[str], values: list[int], effort: str) -> list[Row]:
    """Ends of learned heads from a float32 and a float64 search: their ratio, and the time of each."""
    from rank import learned_heads

    rows = []
    for name in heads:
        a, found = learned_heads()[name], {}
        for p in DTYPES:
            clock, begin = Clock(), time.process_time()
            found[p] = al.rank.error_profile(a, values, effort=effort, precision=p)
            times = {"compile_seconds": clock.compile_seconds, "cpu_seconds": time.process_time() - begin}
            seconds = clock.seconds - clock.compile_seconds
            rows.append({"series": f"profile, {p}", "text": name, "seconds": seconds, **times})
        single, double = found["float32"], found["float64"]
        for k in values:
            i = int(np.flatnonzero(single.ranks == k)[0])
            low, high = single.lower[i] / double.lower[i], single.upper[i] / double.upper[i]
            rows.append({"series": "ends", "text": name, "rank": k, "low": low, "high": high})
    return rows


def effort(head: str, eps: list[float], names: list[str]) -> list[Row]:
    """Brackets of one learned head at every effort."""
    from rank import learned_heads

    a, rows = learned_heads()[head], []
    for name in names:
        begin, clock = time.process_time(), Clock()
        found = al.rank.brackets(a, eps, effort=name)
        times = {"compile_seconds": clock.compile_seconds, "cpu_seconds": time.process_time() - begin}
        text = ", ".join(f"[{b.lower}, {b.upper}]" for b in found)
        seconds = clock.seconds - clock.compile_seconds
        rows.append({"series": name, "task": f"{head}, eps {eps}", "seconds": seconds, **times, "text": text})
    return rows


def agreement(head: str, values: list[int]) -> list[Row]:
    """Ends from a search on the devices here over those from the same search on one CPU device."""
    from rank import learned_heads

    a, here = learned_heads()[head], lane_devices()
    mine = al.rank.error_profile(a, values, effort="fast")
    with use_devices(jax.devices("cpu")[:1]):
        other = al.rank.error_profile(a, values, effort="fast")
    low, high = mine.lower[1:-1] / other.lower[1:-1], mine.upper[1:-1] / other.upper[1:-1]
    facts = {"devices": len(here), "task": here[0].platform, "text": f"{values} of {head}"}
    ends = {"low": float(low.min()), "value": float(low.max()), "high": float(high.max())}
    return [{"series": "against one CPU device", **facts, **ends}]


def peers(limit: float, rank: int, dims: list[int], fit_starts: int) -> list[Row]:
    """What people use today, in this process, on the same threads."""
    import fit as fit_benchmark
    import fusion as fusion_benchmark
    from rank import learned_heads
    from rank_speed import STEPS, alternating

    a, eps, rows = learned_heads()["layer 3 head 5"], 0.2, []
    theirs, svd = timed(lambda: al.rank.svd_bracket(a, eps))
    ours, mine = timed(lambda: al.rank.bracket(a, eps, effort="fast"), 1)
    text = f"[{svd[0]}, {svd[1]}] against [{mine.lower}, {mine.upper}]"
    rows.append(_peer("SVD bracket, n = 64", "gap of r_0.2", theirs, ours, text))
    error, seconds = alternating(a, rank, limit)
    starts = np.full(8, rank), np.arange(8)
    for steps in STEPS:
        arguments = (*starts, steps, np.float32)
        row, (pairs, _) = timed(lambda: search_upper(a, *arguments, np.random.default_rng(0), 33), 1)  # noqa: B023
        reached = min(np.abs(a - u @ w).sum(1).max() for u, w in pairs)
        if reached <= error or steps == STEPS[-1]:
            text = f"a_{rank + 1} <= {error:.4f} against {reached:.4f}"
            rows.append(_peer("HiGHS alternation", f"rank {rank} factors", {"seconds": seconds}, row, text))
            break
    for d in dims:
        heads = al.fusion.exact_sigmoid_sum(d)
        theirs, _ = timed(lambda: fusion_benchmark.raw(heads))  # noqa: B023
        ours, done = timed(lambda: al.fusion.fuse(heads), 1)  # noqa: B023
        text = f"{done.upper} atoms; ours adds lower bound and certificates"
        rows.append(_peer("python-flint gcd", f"W_{d}", theirs, ours, text))
    box = al.fusion.Box(2.0, 3)
    ours, found = timed(lambda: al.fusion.fit(al.sigmoid_sum(3), 6, box, key=0, starts=fit_starts), 1)
    head, _ = fit_benchmark.bfgs(6, 2.0, ours["seconds"], 0)
    error, best = (
        fit_benchmark.certified(head, box),
        al.fusion.sup_error(al.sigmoid_sum(3), found.head, box, 1e-3),
    )
    text = f"certified error {error:.4f} against {best.hi:.4f}, equal time"
    rows.append(_peer("SciPy multi-start BFGS", "W_3, 6 atoms, R = 2", ours, ours, text))
    return rows


def _peer(name: str, task: str, theirs: Row, ours: Row, text: str) -> Row:
    ratio = theirs["seconds"] / ours["seconds"]
    times = {"peer_seconds": theirs["seconds"], "seconds": ours["seconds"], "value": ratio}
    return {"series": name, "task": task, "text": text, **times}


TASKS: dict[str, Callable[..., list[Row]]] = {
    f.__name__: f
    for f in (
        idle,
        search,
        bracket,
        streamed,
        ranks,
        lanes,
        devices,
        dimensions,
        precision,
        effort,
        agreement,
        peers,
    )
}
