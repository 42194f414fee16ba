"""Exact heads in JSON files, and the result of a fusion as JSON and as files.

Format: a list of heads, or an object ``{"heads": [...], "basis": ...}``. A head is an object with ``keys``
(rational, one row per atom; plain numbers mean d = 1), optional ``weights`` (default 1 each) and ``values``.
With ``exponents`` instead of ``keys`` (in every head) the keys are integers in lattice coordinates, and
``basis`` may give the key of each unit exponent. Numbers are integers or text such as ``"2/3"`` and
``"0.25"``; JSON floats are refused because their digits are rarely what was meant.
"""

import json
import os
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

from ._exact import ExactHead, rational, rows, sequence
from ._fuse import Fusion, checked_heads
from ._lattice import from_keys

HEAD_FIELDS = {"keys", "exponents", "weights", "values"}
EXAMPLE = '[{"keys": [0, 1], "weights": [1, "1/2"], "values": [0, 1]}, ...]'


def read_heads(path: str | os.PathLike[str]) -> list[ExactHead]:
    """The heads in a JSON file.

    Raises:
        ValueError: not JSON, not heads, or numbers that are not exact; one sentence with the place.
        FileNotFoundError: no such file.
    """
    path = Path(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse, parse_float=_Float)
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text; give heads as JSON, for example {EXAMPLE}.") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON ({error}); give heads such as {EXAMPLE}.") from None
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply to be heads.") from None
    except ValueError as error:
        raise ValueError(f"{path} has a number that cannot be read: {error}.") from None
    try:
        return parse_heads(data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def parse_heads(data: Any) -> list[ExactHead]:
    """The heads in JSON data; see the module for the format."""
    basis = None
    if isinstance(data, Mapping):
        unknown = sorted(data.keys() - {"heads", "basis"})
        if unknown or "heads" not in data:
            raise ValueError(f"expected a list of heads or an object with heads, found {_fields(data)}.")
        data, basis = data["heads"], data.get("basis")
    if not isinstance(data, list) or not data:
        raise ValueError(f"there are no heads; give a list such as {EXAMPLE}.")
    for i, head in enumerate(data):
        if not isinstance(head, Mapping) or not {"values"} <= head.keys() <= HEAD_FIELDS:
            what = _fields(head) if isinstance(head, Mapping) else json.dumps(head, default=str)[:60]
            raise ValueError(f"head {i} must be an object with keys, weights and values, found {what}.")
        if len(head.keys() & {"keys", "exponents"}) != 1:
            raise ValueError(f"head {i} must have either keys or exponents.")
    kinds = {"exponents" if "exponents" in head else "keys" for head in data}
    if len(kinds) > 1:
        raise ValueError("some heads have keys and others exponents; give the same for all.")
    (kind,) = kinds
    if kind == "keys":
        if basis is not None:
            raise ValueError("basis belongs to exponents; heads with keys need none.")
        for i, head in enumerate(data):  # alone first, so that a fault names its head
            _named(i, lambda head=head: from_keys([head["keys"]], [_weights(head)], [head["values"]]))
        columns = [h["keys"] for h in data], [_weights(h) for h in data], [h["values"] for h in data]
        return checked_heads(from_keys(*columns))
    return checked_heads(
        [
            _named(i, lambda h=h: ExactHead(h["exponents"], _weights(h), h["values"], _basis(basis)))
            for i, h in enumerate(data)
        ]
    )


def fusion_data(result: Fusion) -> dict[str, Any]:
    """A fusion as JSON data; the head can be read back by ``parse_heads``."""
    return {
        "lower": result.lower,
        "upper": result.upper,
        "closed": result.closed,
        "method": result.method,
        "terms": result.terms,
        "product": result.product,
        "vertices": result.vertices,
        "window": result.window,
        "head": {
            "keys": [[_number(x) for x in key] for key in keys_of(result.head)],
            "weights": [_number(w) for w in result.head.weights],
            "values": [
                [_number(x) for x in v] if isinstance(v, tuple) else _number(v) for v in result.head.values
            ],
        },
    }


def keys_of(head: ExactHead) -> list[tuple[Any, ...]]:
    """Keys in R^d: exponents times basis (floats where the basis holds floats)."""
    if head.basis is None:
        return list(head.exponents)
    columns = list(zip(*head.basis, strict=True))
    return [tuple(sum(e * b for e, b in zip(key, c, strict=True)) for c in columns) for key in head.exponents]


def write_fusion(out: str | os.PathLike[str], result: Fusion, data: dict[str, Any]) -> None:
    """Both certificates and ``fusion.json`` into a folder; their paths are added to ``data``."""
    lower, upper = result.certificate.save(out)
    data["certificates"] = {"lower": str(lower), "upper": str(upper)}
    path = Path(out) / "fusion.json"
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps(data, indent=1))
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


class _Float(str):
    """The text of a JSON float, which is refused as a number but can be quoted in the message."""


def _named(index: int, make: Any) -> Any:
    try:
        return make()
    except ValueError as error:
        raise ValueError(f"head {index}: {error}") from None


def _weights(head: Mapping[str, Any]) -> Any:
    """The weights, after refusing floats anywhere in the head."""
    for name, value in head.items():
        found = _float_in(value)
        if found is not None:
            raise ValueError(
                f'{name} holds the float {found}; write it as text ("{found}") if exactly that is meant.'
            )
    if "weights" in head:
        return head["weights"]
    name = "keys" if "keys" in head else "exponents"
    return [1] * len(rows(head[name], name))


def _float_in(value: Any) -> _Float | None:
    if isinstance(value, _Float):
        return value
    if isinstance(value, list):
        return next((x for x in map(_float_in, value) if x is not None), None)
    return None


def _basis(basis: Any) -> Any:
    """A basis may hold irrational numbers, so its floats are taken as they are."""
    if basis is None:
        return None
    return [
        [float(x) if isinstance(x, _Float) else rational(x, "basis") for x in row]
        for row in (rows(sequence(basis, "basis"), "basis"))
    ]


def _number(x: Any) -> int | str | float:
    if isinstance(x, Fraction):
        return int(x) if x.denominator == 1 else str(x)
    return x


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number here")


def _fields(data: Mapping[str, Any]) -> str:
    return f"an object with {', '.join(sorted(map(str, data)))}" if data else "an empty object"
