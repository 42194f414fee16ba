"""Reading one attention matrix, its logits, or its factors from ``.npy``, ``.npz`` or ``.safetensors``.

NumPy only, so that ``attnlab verify`` can use it without loading JAX.
"""

import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

KINDS = ("attention", "logits", "q,k")
FACTORED_ABOVE = 2**20  # entries from which on q and k are kept as they are


@dataclass(frozen=True, eq=False)
class MatrixFile:
    """What was read.

    Attributes:
        kind: "attention" or "logits"; "q,k" if they are too large to be multiplied out.
        array: (m, N) float64; empty for "q,k".
        factors: for "q,k" the arrays q, k, beta, log_weights and perhaps mask (packed bits).
    """

    kind: str
    array: np.ndarray
    source: str
    factors: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def subject(self) -> dict[str, np.ndarray]:
        """The named arrays of a certificate about it."""
        return self.factors or {self.kind: self.array}

    @property
    def shape(self) -> tuple[int, int]:
        """Queries and keys."""
        m, n = (len(self.factors["q"]), len(self.factors["k"])) if self.factors else self.array.shape
        return m, n


def read_matrix(
    path: str | Path,
    key: str | None = None,
    head: Sequence[int] = (),
    beta: float | None = None,
    normalize: bool = False,
) -> MatrixFile:
    """One matrix out of a file.

    Arguments:
        path: ``.npy`` (one array), ``.npz`` or ``.safetensors`` (named arrays).
        key: "attention", "logits" or "q,k"; "attention=NAME" (or "logits=NAME", "q=NAME,k=NAME") for
            arrays of another name. Default: the first of the three that the file has; a ``.npy`` is
            attention.
        head: indices into the leading axes of arrays with more than two, e.g. layer and head.
        beta: multiplies q k'; default the file's own ``beta``, or 1.
        normalize: divide rows of attention by their sums.

    Raises:
        ValueError: anything wrong with the file or the choice, in one sentence.
        FileNotFoundError: no such file.
    """
    path = Path(path)
    arrays = _open(path)
    kind, names = _choice(key, arrays, path)
    picked = [_one(arrays, name, head, path) for name in names]
    if kind != "q,k":
        array = picked[0]
        if normalize and kind == "attention":
            sums = array.sum(1, keepdims=True)
            if not (np.isfinite(sums) & (sums > 0)).all():
                raise ValueError(
                    f"{path.name}: a row sums to zero or is not finite, so it cannot be normalised."
                )
            array = array / sums
        return MatrixFile(kind, array, f"{path.name}: {names[0]}{_suffix(head)}")
    q, k = picked
    if q.shape[1] != k.shape[1]:
        raise ValueError(f"{path.name}: q and k have different dimensions {q.shape[1]} and {k.shape[1]}.")
    if not (np.isfinite(q).all() and np.isfinite(k).all()):
        raise ValueError(f"{path.name}: q or k has NaN or infinite entries: remove or replace them.")
    scale = beta if beta is not None else float(arrays["beta"]) if "beta" in arrays else 1.0
    if len(q) * len(k) > FACTORED_ABOVE:
        factors = {"q": q, "k": k, "beta": np.array(scale), "log_weights": np.zeros(len(k))}
        if "log_weights" in arrays:
            factors["log_weights"] = np.asarray(arrays["log_weights"], np.float64)
        if "mask" in arrays:
            factors["mask"] = np.packbits(np.asarray(arrays["mask"], bool), axis=1)
        return MatrixFile("q,k", np.empty((0, 0)), f"{path.name}: {scale:g} q k'{_suffix(head)}", factors)
    logits = scale * (q @ k.T)
    if "log_weights" in arrays:
        logits = logits + np.asarray(arrays["log_weights"], np.float64)
    if "mask" in arrays:
        logits = np.where(np.asarray(arrays["mask"], bool), logits, -np.inf)
    return MatrixFile("logits", logits, f"{path.name}: {scale:g} q k'{_suffix(head)}")


def _open(path: Path) -> dict[str, Any]:
    """Named arrays; a ``.npy`` has the single name ``""``."""
    readers: dict[str, Callable[[Path], dict[str, Any]]] = {
        ".npy": lambda p: {"": np.load(p, allow_pickle=False)},
        ".npz": _read_npz,
        ".safetensors": _read_safetensors,
    }
    if path.suffix not in readers:
        raise ValueError(f"{path.name}: unknown file type {path.suffix!r}; use {', '.join(readers)}.")
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file.")
    try:
        return readers[path.suffix](path)
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile, KeyError) as error:
        reason = " ".join(str(error).split())
        if "pickle" in reason:
            raise ValueError(
                f"{path.name} holds pickled objects, which are never loaded: save plain numeric arrays."
            ) from None
        raise ValueError(
            f"{path.name} cannot be read; it may be truncated or of another type ({reason})."
        ) from None


def _read_npz(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        data = np.load(file, allow_pickle=False)
        if not isinstance(data, np.lib.npyio.NpzFile):
            raise ValueError("it is a bare .npy array")
        return {name: data[name] for name in data.files}


def _read_safetensors(path: Path) -> dict[str, Any]:
    import safetensors
    import safetensors.numpy

    try:
        return safetensors.numpy.load_file(path)
    except safetensors.SafetensorError as error:
        raise ValueError(str(error)) from None


def _choice(key: str | None, arrays: dict[str, Any], path: Path) -> tuple[str, list[str]]:
    """The kind, and the names of the arrays that make it."""
    known = ", ".join(sorted(arrays)) or "nothing"
    if "" in arrays:
        if key not in (None, "attention", "logits"):
            raise ValueError(f"{path.name} is one array: --key must be attention or logits, not {key!r}.")
        return ("logits" if key == "logits" else "attention"), [""]
    if key is None:
        for kind in KINDS:
            if all(name in arrays for name in kind.split(",")):
                return kind, [str(name) for name in kind.split(",")]
        raise ValueError(
            f"{path.name} has neither attention, logits, nor q and k (it has {known}); "
            "name the array, e.g. --key attention=NAME."
        )
    pairs = [part.split("=", 1) for part in key.split(",")]
    kind, names = ",".join(p[0].strip() for p in pairs), [p[-1].strip() for p in pairs]
    if kind not in KINDS:
        raise ValueError(
            f"--key must be attention, logits or q,k (each with =NAME if it differs), not {key!r}."
        )
    missing = [name for name in names if name not in arrays]
    if missing:
        raise ValueError(f"{path.name} has no array {missing[0]!r}; it has {known}.")
    return kind, names


def _one(arrays: dict[str, Any], name: str, head: Sequence[int], path: Path) -> np.ndarray:
    """The chosen (rows, columns) slice as float64."""
    label = f"{path.name}: {name or 'the array'}"
    array = arrays[name]
    if array.dtype.kind not in "fiub":
        raise ValueError(
            f"{label} has dtype {array.dtype}, not real numbers: convert it to float32 or float64."
        )
    if array.ndim != 2 + len(head):
        leading = array.shape[:-2]
        if array.ndim > 2:
            raise ValueError(
                f"{label} has shape {array.shape}: choose one matrix with --head and "
                f"{len(leading)} indices below {','.join(map(str, leading))}."
            )
        raise ValueError(f"{label} has shape {array.shape}; a matrix is needed, and --head must fit.")
    for axis, index in enumerate(head):
        if not 0 <= index < array.shape[axis]:
            raise ValueError(
                f"--head index {index} is outside 0..{array.shape[axis] - 1} (axis {axis} of {label})."
            )
    return np.asarray(array[tuple(head)], np.float64)


def _suffix(head: Sequence[int]) -> str:
    return f"[{','.join(map(str, head))}]" if head else ""
