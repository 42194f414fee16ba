"""Lanes: the one place where batched solvers meet devices.

A solver is a function of one lane (one start, rank, matrix, ...) and of data that all lanes share. Here it
is put under ``vmap``, cut into chunks, and the chunks are spread over devices along a mesh axis called
``lanes``. Lanes never speak to each other, so every device runs the program a single device would run.

Shape buckets. A chunk holds a fixed number of lanes per device (``width``), whatever the number of lanes;
missing ones are copies of real ones and are dropped afterwards. So a problem shape compiles once on one
device, and at most twice on several (whole chunks on all devices, a last small one on the first).

Several hosts. By default lanes run on the devices of this process, and processes can work on different
problems. Inside ``use_devices(jax.devices())`` after ``jax.distributed.initialize`` all processes must make
the same calls; each runs its share of the lanes and all of them receive all results.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "lanes"
WIDTH = {"cpu": 4}  # lanes per device and chunk; on a core more are no faster and cost more padding
ACCELERATOR_WIDTH = 64
COPIES = 8  # what a chunk holds at its peak, in units of its input (optimiser memory, best, gradients)
CHUNK_BYTES = 2**30

Device = Any  # jax.Device, which type checkers cannot see

_chosen: ContextVar[tuple[Device, ...] | None] = ContextVar("devices", default=None)


@contextmanager
def use_devices(devices: Sequence[Device]) -> Iterator[None]:
    """Run the searches of this thread on these devices instead of all local ones.

    Results do not depend on the devices, up to rounding. With devices of other processes
    (``jax.devices()`` after ``jax.distributed.initialize``) lanes are spread over all processes, which must
    then make the same calls in the same order.

    Arguments:
        devices: of one platform, each once.

    Raises:
        ValueError: no devices, a repeated one, or a mixture of platforms.

    >>> import jax
    >>> with use_devices(jax.local_devices()[:1]):
    ...     lane_devices()
    (CpuDevice(id=0),)
    """
    chosen = tuple(devices)
    platforms = sorted({d.platform for d in chosen})
    if not chosen or len(set(chosen)) < len(chosen):
        raise ValueError(f"devices must be one or more different devices, got {list(chosen)}.")
    if len(platforms) > 1:
        raise ValueError(
            f"devices mixes {' and '.join(platforms)}: lanes run on one platform at a time, pass "
            f'jax.local_devices(backend="{platforms[-1]}").'
        )
    token = _chosen.set(chosen)
    try:
        yield
    finally:
        _chosen.reset(token)


def lane_devices() -> tuple[Device, ...]:
    """The devices lanes run on: those of ``use_devices``, JAX's default device if set, or all local."""
    if (chosen := _chosen.get()) is not None:
        return chosen
    default = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(default, str):
        return (jax.local_devices(backend=default)[0],)
    return tuple(jax.local_devices()) if default is None else (default,)


def width(lane_bytes: int = 0) -> int:
    """Lanes per device and chunk: a power of two, fewer where a lane is large (chunks of about 1 GiB).

    Arguments:
        lane_bytes: size of one lane's parameters and of the data it works on.
    """
    most = WIDTH.get(lane_devices()[0].platform, ACCELERATOR_WIDTH)
    room = max(CHUNK_BYTES // max(COPIES * lane_bytes, 1), 1)
    return min(most, 1 << (room.bit_length() - 1))


def run_lanes(program: Callable[..., Any], lanes: Any, *shared: Any, dtype: Any) -> Any:
    """``program(lane, *shared)`` for every lane.

    Arguments:
        program: a module-level function of one lane, in JAX. Its identity is part of the compilation key.
        lanes: pytree of host arrays with a leading lane axis.
        shared: pytrees of host arrays; sizes that vary from call to call belong here as arrays.
        dtype: floating-point arrays are cast to this.

    Returns:
        The pytree that ``program`` returns, as NumPy arrays with a leading lane axis.
    """
    cast = lambda x: np.asarray(x, dtype if np.asarray(x).dtype.kind == "f" else None)
    lanes, shared = jax.tree.map(cast, (lanes, shared))
    count = len(jax.tree.leaves(lanes)[0])
    own, common = (sum(x.nbytes for x in jax.tree.leaves(tree)) for tree in (lanes, shared))
    devices, per_device = lane_devices(), width(own // count + common)
    everywhere = Mesh(np.array(devices), AXIS)
    alone = Mesh(np.array(devices[:1]), AXIS)
    data: dict[Mesh, Any] = {}
    parts, begin = [], 0
    while begin < count:
        mesh = everywhere if across_processes(devices) or count - begin > per_device else alone
        if mesh not in data:
            data[mesh] = jax.tree.map(lambda x, m=mesh: place(x, m, PartitionSpec()), shared)
        size = per_device * mesh.size
        take = np.arange(begin, begin + size) % count
        chunk = jax.tree.map(lambda x, m=mesh, t=take: place(x[t], m, PartitionSpec(AXIS)), lanes)
        with jax.default_matmul_precision("highest"):
            parts.append(fetch(_run(program, mesh, chunk, data[mesh])))
        begin += size
    return jax.tree.map(lambda *x: np.concatenate(x)[:count], *parts)


@eqx.filter_jit
def _run(program: Callable[..., Any], mesh: Mesh, lanes: Any, shared: tuple[Any, ...]) -> Any:
    batched = lambda lanes, shared: jax.vmap(lambda lane: program(lane, *shared))(lanes)
    if mesh.size > 1:
        split, whole = PartitionSpec(AXIS), PartitionSpec()
        # Lanes are independent: nothing to check across devices, and loops may end at different times.
        batched = jax.shard_map(batched, mesh=mesh, in_specs=(split, whole), out_specs=split, check_vma=False)
    return batched(lanes, shared)


def across_processes(devices: Sequence[Device]) -> bool:
    """Whether some of these devices belong to another process."""
    return any(d.process_index != jax.process_index() for d in devices)


def place(x: np.ndarray, mesh: Mesh, spec: PartitionSpec) -> jax.Array:
    """An array on the devices of the mesh; each process hands over its own part."""
    sharding = NamedSharding(mesh, spec)
    if not across_processes(list(mesh.devices.flat)):
        return jax.device_put(x, sharding)
    return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])


def fetch(tree: Any) -> Any:
    """Arrays on the host; where they are spread over processes everybody receives everything."""
    if all(x.is_fully_addressable for x in jax.tree.leaves(tree)):
        return jax.device_get(tree)
    from jax.experimental.multihost_utils import process_allgather

    return jax.tree.map(partial(process_allgather, tiled=True), tree)
