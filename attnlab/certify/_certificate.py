"""One certificate: a kind, a claim, a witness and a subject, and the ``.npz`` file that holds them.

File layout (no pickles): ``kind`` and ``claim`` (JSON) as text, ``version`` as an integer, arrays
``witness/NAME``, and either arrays ``subject/NAME`` or only ``subject_sha256`` (then the subject is
given at verification). ``digest`` is a SHA-256 of everything else: it detects damage early and proves
nothing; the mathematics is always recomputed from subject and witness.
"""

import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ._errors import CertificateError, InvalidWitness
from ._kinds import checker
from ._verdict import Verdict, failed

VERSION = 1

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Certificate:
    """A claim about a subject together with the arrays that prove it.

    Attributes:
        kind: which theorem is applied, e.g. ``"rank-lower"`` (see ``attnlab.certify`` docs for all).
        claim: the numbers claimed, JSON-serialisable.
        witness: named arrays, numeric or text, no objects.
        subject: named arrays the claim is about; empty for a detached certificate.
        subject_sha256: SHA-256 of the subject, filled in automatically unless detached.
    """

    kind: str
    claim: Mapping[str, Any]
    witness: Arrays
    subject: Arrays = field(default_factory=dict)
    subject_sha256: str = ""
    damage: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        checker(self.kind)  # raises CertificateError for an unknown kind
        object.__setattr__(self, "witness", _plain(self.witness, "witness"))
        object.__setattr__(self, "subject", _plain(self.subject, "subject"))
        if self.subject and not self.subject_sha256:
            object.__setattr__(self, "subject_sha256", _sha256(self.subject))

    def __repr__(self) -> str:
        claim = ", ".join(f"{k}={v}" for k, v in self.claim.items())
        return f"Certificate({self.kind}: {claim})"

    def verify(self, subject: Arrays | None = None, *, arb: bool = False) -> Verdict:
        """Recompute the claim from subject and witness.

        Arguments:
            subject: named arrays, needed for a detached certificate; its hash must match.
            arb: use Arb ball arithmetic where the kind has a float64 path by default (slower).

        Returns:
            A ``Verdict``. Anything wrong with witness or subject gives ``holds=False``.
        """
        if self.damage:
            return failed(self.damage)
        try:
            subject = self._resolve_subject(subject)
            with np.errstate(all="ignore"):
                return checker(self.kind)(self.claim, self.witness, subject, arb)
        except InvalidWitness as error:
            return failed(str(error))
        except (KeyError, TypeError, ValueError, OverflowError, IndexError) as error:
            return failed(f"The witness or claim is malformed ({type(error).__name__}: {error}).")

    def detach(self) -> "Certificate":
        """The same certificate without its subject, which must then be given to ``verify``."""
        return Certificate(self.kind, self.claim, self.witness, {}, self.subject_sha256)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ``.npz`` file under a temporary name and rename it, so no partial file is seen."""
        path = Path(path)
        entries: dict[str, np.ndarray] = {
            "kind": np.array(self.kind),
            "version": np.array(VERSION),
            "claim": np.array(json.dumps(dict(self.claim))),
            "subject_sha256": np.array(self.subject_sha256),
        }
        entries |= {f"witness/{k}": v for k, v in self.witness.items()}
        entries |= {f"subject/{k}": v for k, v in self.subject.items()}
        entries["digest"] = np.array(_sha256(entries))
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **entries)  # pyright: ignore[reportArgumentType]
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_bytes(buffer.getvalue())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    def _resolve_subject(self, given: Arrays | None) -> Arrays:
        if given is None:
            if not self.subject:
                raise InvalidWitness(
                    "This certificate holds only the hash of its subject: pass the subject to verify."
                )
            given = self.subject
        else:
            given = _plain(given, "subject")
        if _sha256(given) != self.subject_sha256:
            raise InvalidWitness("The subject is not the one this certificate was made for (SHA-256).")
        return given


def load(path: str | os.PathLike[str]) -> Certificate:
    """Read a certificate file.

    Raises:
        CertificateError: not a certificate, truncated, pickled, or of an unknown kind or version.
        FileNotFoundError: no such file.
    """
    try:
        with open(path, "rb") as file:
            data = np.load(file, allow_pickle=False)
            if not isinstance(data, np.lib.npyio.NpzFile):
                raise CertificateError(f"{path} is a bare array, not a certificate (.npz).")
            entries = {name: data[name] for name in data.files}
    except (
        zipfile.BadZipFile,
        ValueError,
        EOFError,
        OSError,
        zlib.error,
        KeyError,
    ) as error:
        if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError | CertificateError):
            raise
        raise CertificateError(
            f"{path} is not a readable certificate ({error}); it may be truncated or pickled."
        ) from None
    missing = {"kind", "version", "claim", "subject_sha256", "digest"} - entries.keys()
    if missing:
        raise CertificateError(f"{path} is not a certificate: it lacks {', '.join(sorted(missing))}.")
    try:
        version = int(entries["version"])
        claim = json.loads(str(entries["claim"][()]))
    except (ValueError, TypeError) as error:
        raise CertificateError(f"{path} has an unreadable version or claim ({error}).") from None
    if version != VERSION:
        raise CertificateError(f"{path} has format version {version}; this attnlab reads {VERSION}.")
    if not isinstance(claim, dict):
        raise CertificateError(f"{path} has a claim that is not a JSON object.")
    digest = str(entries.pop("digest")[()])
    damage = (
        ""
        if digest == _sha256(entries)
        else f"{path} was altered after it was written (its digest does not match)."
    )
    return Certificate(
        kind=str(entries["kind"][()]),
        claim=claim,
        witness=_part(entries, "witness/"),
        subject=_part(entries, "subject/"),
        subject_sha256=str(entries["subject_sha256"][()]),
        damage=damage,
    )


def _part(entries: Arrays, prefix: str) -> dict[str, np.ndarray]:
    return {k.removeprefix(prefix): v for k, v in entries.items() if k.startswith(prefix)}


def _plain(arrays: Arrays, role: str) -> dict[str, np.ndarray]:
    """Copies as plain NumPy arrays; objects (which would need pickling) are refused."""
    plain = {}
    for name, value in arrays.items():
        array = np.array(value)
        if array.dtype.kind not in "biufU":
            raise CertificateError(f"{role}/{name} has dtype {array.dtype}; use numbers or text.")
        array.setflags(write=False)
        plain[name] = array
    return plain


def _sha256(arrays: Arrays) -> str:
    """A hash of names, dtypes, shapes and values, independent of order and compression."""
    state = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        if array.dtype.kind == "U":  # itemsize of text depends on how it was made, so hash the text
            content = json.dumps(array.tolist()).encode()
            header = f"{name}|text|{array.shape}|"
        else:
            content = array.astype(array.dtype.newbyteorder("<"), copy=False).data  # large: not copied
            header = f"{name}|{array.dtype.newbyteorder('<').str}|{array.shape}|"
        state.update(header.encode())
        state.update(content)
    return state.hexdigest()
