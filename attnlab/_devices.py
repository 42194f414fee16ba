"""What a run will use: devices, precision, and whether an accelerator is being left idle."""

import contextlib
import importlib.metadata
import os
from pathlib import Path
from typing import Any

import jax

from ._lanes import lane_devices, width

PLUGINS = {"jax-cuda13-plugin": "cuda", "jax-cuda12-plugin": "cuda", "libtpu": "tpu"}
NVIDIA = Path("/proc/driver/nvidia/version")  # present where the kernel driver is loaded


def describe() -> dict[str, Any]:
    """Facts about a search started now in this process, as plain data."""
    devices = lane_devices()
    cache = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    return {
        "platform": devices[0].platform,
        "devices": [f"{d.platform}:{d.id} {d.device_kind}" for d in devices],
        "processes": jax.process_count(),
        "lanes_per_device": width(),
        "lanes_per_chunk": width() * len(devices),
        "search_precision": "float32 (float64 by argument; needs jax_enable_x64)",
        "certificate_precision": "float64 with rounding bounds, Arb or integers, on the host",
        "jax_enable_x64": bool(jax.config.read("jax_enable_x64")),
        "compilation_cache": cache or "off",
        "fallback": fallback() or "none",
    }


def fallback() -> str | None:
    """One sentence if searches run on the CPU although an accelerator seems to be here, else ``None``."""
    if lane_devices()[0].platform != "cpu" or os.environ.get("JAX_PLATFORMS") == "cpu":
        return None
    for package, platform in PLUGINS.items():
        if _installed(package):
            return (
                f"{package} is installed but JAX fell back to the CPU: run with "
                f"JAX_PLATFORMS={platform} to see why, or with JAX_PLATFORMS=cpu if the CPU is meant."
            )
    if NVIDIA.exists():
        return (
            "an NVIDIA driver is here but JAX has no CUDA plugin, so searches run on the CPU: "
            'pip install "attnlab[cuda]", or set JAX_PLATFORMS=cpu if the CPU is meant.'
        )
    return None


def use_every_core() -> None:
    """Show every CPU core to JAX as a device, unless JAX has started or something else was chosen.

    XLA runs a search on one core per CPU device. For applications; the library never does this.
    """
    if os.environ.get("XLA_FLAGS", "").count("host_platform_device_count") or os.cpu_count() == 1:
        return
    if jax.config.jax_num_cpu_devices != -1:  # pyright: ignore[reportAttributeAccessIssue]
        return
    with contextlib.suppress(RuntimeError):  # JAX has started
        jax.config.update("jax_num_cpu_devices", os.cpu_count())


def _installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
