"""The attention function that records: registered once with transformers, used by every model family.

transformers hands query, key, value, mask and scale, after rotary embedding, to whatever function is
registered under the name in the model's configuration. Ours runs the family's own eager attention,
so the model computes what it always does, and keeps what it saw. Torch is imported by the caller.
"""

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

NAME = "attnlab"
AGREE = 1e-4  # a family whose attention is not this softmax differs by far more, rounding by less


@dataclass(frozen=True, eq=False)
class Layer:
    """What one call of attention saw, batch first.

    Attributes:
        logits: (B, H, m, N) float32, -inf where masked. q: (B, H, m, d). k: (B, H, N, d), repeated for
            shared keys. scale: logits = scale * q k' where not masked.
    """

    logits: np.ndarray
    q: np.ndarray
    k: np.ndarray
    scale: float


@dataclass
class _Recorder:
    wanted: Collection[int] | None
    calls: int = 0
    layers: dict[int, Layer] = field(default_factory=dict)


_active: list[_Recorder] = []


def install(model: Any, label: str) -> None:
    """Route the attention of a model through the recorder.

    Raises:
        ValueError: the model's code does not look attention functions up by name.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, eager_mask)
    try:
        model.set_attn_implementation(NAME)
    except (ValueError, KeyError, NotImplementedError, AttributeError):
        raise ValueError(_no_hooks(label)) from None
    if model.config._attn_implementation != NAME:
        raise ValueError(_no_hooks(label))


def record(model: Any, inputs: dict[str, Any], label: str, wanted: Collection[int] | None = None) -> list:
    """Run the model once; ``Layer`` for every wanted call of attention, None for the others.

    Raises:
        ValueError: no attention went through the hook, or the model's attention is not the softmax of
            scale * q k' plus a mask.
    """
    import torch

    with _recording(wanted) as recorder, torch.inference_mode():
        try:
            model(**inputs)
        except _NotCovered as reason:
            raise ValueError(f"{label}: {reason}.") from None
        except (TypeError, AttributeError) as error:  # two towers, each with an input of its own
            raise ValueError(
                f"{label} needs other input than one text or one image ({' '.join(str(error).split())}): "
                "give a folder that holds the text or the vision part alone."
            ) from None
    if recorder.calls == 0:
        raise ValueError(_no_hooks(label))
    return [recorder.layers.get(i) for i in range(recorder.calls)]


class _NotCovered(Exception):
    """Raised inside a forward pass: the attention is not one that logits, q and k describe."""


def _no_hooks(label: str) -> str:
    return (
        f"{label} has no attention hooks: its code does not look attention functions up by name in "
        "transformers' AttentionInterface; use a model that does (BERT, GPT-2, Qwen2, ViT, ...)."
    )


@contextmanager
def _recording(wanted: Collection[int] | None) -> Iterator[_Recorder]:
    _active.append(_Recorder(wanted))
    try:
        yield _active[-1]
    finally:
        _active.pop()


def _attention(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Any, Any]:
    eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if eager is None:
        raise _NotCovered("its code has no eager attention to run and to compare with")
    output, weights = eager(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    if not _active:  # the model outlived its capture
        return output, weights
    recorder = _active[-1]
    index, recorder.calls = recorder.calls, recorder.calls + 1
    if recorder.wanted is None or index in recorder.wanted:
        recorder.layers[index] = _layer(query, key, attention_mask, scaling, weights)
    return output, weights


def _layer(query: Any, key: Any, mask: Any, scaling: float | None, weights: Any) -> Layer:
    """In float64, then rounded; checked against the weights of the family's own code."""
    import torch

    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    q, k = query.double(), key.double()
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    logits = scale * q @ k.transpose(-1, -2)
    if mask is not None:
        blocked = ~mask if mask.dtype == torch.bool else mask <= torch.finfo(mask.dtype).min / 2
        logits = logits.masked_fill(blocked, float("-inf"))
    # A row that sees nothing (a padded query) has no softmax; the models' own value there is a convention.
    seen = torch.isfinite(logits).any(-1, keepdim=True)
    off = ((torch.softmax(logits, -1) - weights).abs() * seen).nan_to_num(0.0).max().item()
    if off > AGREE:
        raise _NotCovered(
            f"its attention differs by {off:.2g} from softmax(scale * q k' + mask), so logits, q and k would "
            "not describe it; soft-capping, sinks and position biases are not supported"
        )
    return Layer(logits.float().numpy(), q.float().numpy(), k.float().numpy(), scale)
