"""Heads out of an attention file: the same as a capture, without the model."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._attention_file import _open
from ._head import CapturedHead

SUFFIXES = (".npy", ".npz", ".safetensors")
CONSISTENT = 1e-3  # largest residual of logits = scale * q k', relative to the size of the logits


def is_file(source: str | Path) -> bool:
    """Whether this names an attention file rather than a model: by its suffix.

    >>> is_file("heads.npz"), is_file("bert-base-uncased")
    (True, False)
    """
    return Path(source).suffix in SUFFIXES


def load_file(
    path: str | Path, *, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None
) -> Iterator[CapturedHead]:
    """Heads of a file, as ``capture`` would give them.

    The array ``logits`` has shape (m, N), (heads, m, N) or (layers, heads, m, N); a stack of shape
    (n, m, N) may come with an integer array ``heads`` of shape (n, 2) that says layer and head of each.
    Without logits, ``q`` and ``k`` (and a scalar ``beta``) make them; without those, ``attention`` does,
    by its logarithm. A ``.npy`` holds attention. ``mask`` (True where a query may look) is applied.

    Arguments:
        path: ``.npz``, ``.npy`` or ``.safetensors``.
        layers, heads: which ones; default all.

    Raises:
        ValueError: anything wrong with the file or the choice, in one sentence.
        FileNotFoundError: no such file.
    """
    path = Path(path)
    arrays = _open(path)
    logits, q, k, scale = _logits(arrays, path)
    names = _names(arrays, logits.shape[:-2], path)
    for label, wanted, known in (("layers", layers, names[:, 0]), ("heads", heads, names[:, 1])):
        check_choice(label, wanted, set(known.tolist()), path.name)
    revision = hashlib.sha256(path.read_bytes()).hexdigest()
    tokens = tuple(map(str, arrays["tokens"])) if "tokens" in arrays else ()
    if tokens and len(tokens) != logits.shape[-1]:
        raise ValueError(f"{path.name}: tokens has {len(tokens)} entries for {logits.shape[-1]} keys.")
    flat = logits.reshape(-1, *logits.shape[-2:])
    for i, (layer, head) in enumerate(names.tolist()):
        _check_head(flat[i], f"{path.name}, head {layer}.{head}")

    def generate() -> Iterator[CapturedHead]:
        for i, (layer, head) in enumerate(names.tolist()):
            if (layers is None or layer in layers) and (heads is None or head in heads):
                flat_q, flat_k = (None if x is None else x.reshape(-1, *x.shape[-2:])[i] for x in (q, k))
                yield CapturedHead(
                    path.stem, revision, layer, head, 0, flat[i], flat_q, flat_k, scale, tokens
                )

    return generate()


def check_choice(label: str, wanted: Sequence[int] | None, known: set[int], source: str) -> None:
    """Raises ValueError unless every wanted index exists."""
    if wanted is None:
        return
    if not len(wanted):
        raise ValueError(f"{label} is empty: name at least one, or leave it out for all.")
    missing = sorted(set(wanted) - known)
    if missing:
        raise ValueError(f"{label}: {source} has no index {missing[0]}; it has {_span(known)}.")


def _span(known: set[int]) -> str:
    ordered = sorted(known)
    whole = ordered == list(range(ordered[0], ordered[-1] + 1))
    return f"{ordered[0]}..{ordered[-1]}" if whole else ", ".join(map(str, ordered))


def _logits(
    arrays: dict[str, Any], path: Path
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None, float]:
    """Logits, q, k and scale; each stack of the same leading shape."""
    q, k = (_numeric(arrays, name, path) for name in ("q", "k"))
    if (q is None) != (k is None):
        raise ValueError(f"{path.name} has only one of q and k: add the other, or logits alone.")
    logits = _numeric(arrays, "logits", path)
    scale = float("nan")
    if q is not None and k is not None:
        if q.ndim < 2 or q.ndim != k.ndim or q.shape[:-2] != k.shape[:-2] or q.shape[-1] != k.shape[-1]:
            raise ValueError(f"{path.name}: shapes {q.shape} of q and {k.shape} of k do not fit together.")
        product = q.astype(np.float64) @ np.swapaxes(k, -1, -2).astype(np.float64)
        if logits is None:
            scale = float(np.asarray(arrays.get("beta", 1.0)))
            logits = (scale * product).astype(np.float32)
        elif logits.shape != product.shape:
            raise ValueError(
                f"{path.name}: logits have shape {logits.shape}, q and k make {product.shape}: drop q and k."
            )
        else:
            scale = _scale(logits, product)
            if np.isnan(scale):  # q and k of something else, such as before rotation
                q = k = None
    if logits is None:
        attention = _numeric(arrays, "attention" if "" not in arrays else "", path)
        if attention is None:
            known = ", ".join(sorted(arrays)) or "nothing"
            raise ValueError(f"{path.name} has neither logits, q and k, nor attention; it has {known}.")
        if not (attention >= 0).all():
            raise ValueError(f"{path.name}: attention has negative or NaN entries; call the array logits.")
        with np.errstate(divide="ignore"):
            logits = np.log(attention.astype(np.float64)).astype(np.float32)
    if logits.ndim not in (2, 3, 4) or logits.size == 0:
        raise ValueError(
            f"{path.name}: logits have shape {logits.shape}; (m, N), (heads, m, N) or "
            "(layers, heads, m, N) is needed."
        )
    if "mask" in arrays:
        mask = np.asarray(arrays["mask"])
        if mask.dtype != bool or mask.shape not in (logits.shape, logits.shape[-2:]):
            raise ValueError(
                f"{path.name}: mask must be boolean of shape {logits.shape[-2:]}, not {mask.shape}."
            )
        logits = np.where(mask, logits, np.float32(-np.inf))
    return logits.astype(np.float32), q, k, scale


def _scale(logits: np.ndarray, product: np.ndarray) -> float:
    """The factor between q k' and the logits, ``nan`` if they are not proportional."""
    seen = np.isfinite(logits)
    z, p = logits[seen].astype(np.float64), product[seen]
    scale = float(z @ p / (p @ p)) if (p @ p) > 0 else float("nan")
    off = np.abs(z - scale * p).max(initial=0)
    return scale if off <= CONSISTENT * max(np.abs(z).max(initial=0), 1e-6) else float("nan")


def _numeric(arrays: dict[str, Any], name: str, path: Path) -> np.ndarray | None:
    if name not in arrays:
        return None
    array = np.asarray(arrays[name])
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{path.name}: {name or 'the array'} has dtype {array.dtype}, not real numbers.")
    return array if array.dtype.kind == "f" else array.astype(np.float32)


def _names(arrays: dict[str, Any], leading: tuple[int, ...], path: Path) -> np.ndarray:
    """(n, 2) layer and head of every matrix of the stack."""
    if len(leading) == 1 and "heads" in arrays:
        names = np.asarray(arrays["heads"])
        if names.shape != (leading[0], 2) or names.dtype.kind not in "iu":
            raise ValueError(f"{path.name}: heads must be integers of shape ({leading[0]}, 2).")
        return names.astype(int)
    full = (1,) * (2 - len(leading)) + leading
    return np.array(list(np.ndindex(*full)))


def _check_head(logits: np.ndarray, label: str) -> None:
    if np.isnan(logits).any() or (logits == np.inf).any():
        raise ValueError(f"{label}: logits have NaN or +inf entries; only -inf (masked) is allowed.")
    if (logits == -np.inf).all(1).any():
        raise ValueError(f"{label}: a row is masked throughout; drop it.")
