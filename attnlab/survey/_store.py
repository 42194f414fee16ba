"""The store of a survey: a folder of Parquet part files, with the certificates beside them.

    survey.json         schema version and settings
    cells/              part-*.parquet; the folder is one dataset for pandas, polars, duckdb and pyarrow
    certificates/       one folder per search: certificates, and subject.npz, the logits they are about
    set-aside/          part files that were found damaged; their cells are computed again

Whatever is written gets a temporary name first (with a leading dot, which readers ignore) and is renamed
when it is complete. A process that is killed therefore leaves whole files, and temporary ones that the
next run removes. The lock is the kernel's, so a killed process does not hold it.
"""

import contextlib
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ._cells import Settings, cell_id, matrix_id, search_id
from ._schema import SCHEMA, SCHEMA_VERSION
from ._solve import Solved

MANIFEST = "survey.json"


@dataclass(eq=False)
class Store:
    """A locked store, open for writing; use ``open_store``.

    Attributes:
        root: the folder. settings: of every cell in it.
        finished: ids of the matrices whose cells are stored.
        set_aside: part files found damaged on opening, with the reason.
    """

    root: Path
    settings: Settings
    finished: set[str] = field(default_factory=set)
    set_aside: list[tuple[Path, str]] = field(default_factory=list)

    def write(self, solved: Sequence[Solved]) -> Path | None:
        """Add results as one part file; certificates go first, so that a stored cell always has them.

        Raises:
            OSError: the disk is full or the folder cannot be written; what was stored before is intact.
        """
        fresh = {s.matrix.id: s for s in solved if s.matrix.id not in self.finished}
        if not fresh:
            return None
        for s in fresh.values():
            if s.certificates:
                self._write_certificates(s)
        table = pa.Table.from_pylist([cell for s in fresh.values() for cell in s.cells], SCHEMA)
        path = self.root / "cells" / f"part-{uuid.uuid4().hex}.parquet"
        temporary = path.with_name(f".{path.name}.tmp")
        try:
            pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)
            _flush(temporary)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        self.finished |= fresh.keys()
        return path

    def _write_certificates(self, solved: Solved) -> None:
        folder = self.root / "certificates" / solved.matrix.search
        temporary = folder.with_name(f".{folder.name}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            np.savez_compressed(temporary / "subject.npz", logits=solved.matrix.subject())
            for name, certificate in solved.certificates.items():
                certificate.save(temporary / name)
            shutil.rmtree(folder, ignore_errors=True)  # of a part that was set aside
            os.replace(temporary, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def open_store(root: Path, settings: Settings, resume: bool = False) -> Iterator[Store]:
    """Create a store, or continue one; locked while the context lasts.

    Raises:
        ValueError: there is a store and ``resume`` is false; it has another schema or other settings;
            another survey is writing it; or the folder holds something else.
        OSError: the folder cannot be made or written.
    """
    admit(root, settings, resume)
    root.mkdir(parents=True, exist_ok=True)
    with _lock(root):
        admit(root, settings, resume)  # again: another process may have been faster
        _write_manifest(root / MANIFEST, settings)
        store = Store(root, settings)
        _clean(root)
        _scan(store)
        yield store


def read_settings(root: Path) -> Settings:
    """The settings of a store.

    Raises:
        ValueError: no store, a damaged one, or one of another schema version.
    """
    path = root / MANIFEST
    try:
        content = json.loads(path.read_text())
        version, values = content["schema"], content["settings"]
    except FileNotFoundError:
        raise ValueError(f"{root} holds no survey: there is no {MANIFEST}.") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}): restore it, or name another folder.") from None
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"{root} was written with schema version {version}; this attnlab writes {SCHEMA_VERSION}: "
            "name another folder."
        )
    try:
        return Settings(**{**values, "eps": tuple(values["eps"])})
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{path} has settings that cannot be read ({error}).") from None


def read_cells(root: Path) -> pa.Table:
    """All cells of a store, sorted by model, window, layer, head, beta and eps.

    Raises:
        ValueError: no store, one of another schema version, or a damaged part file.
    """
    read_settings(root)
    parts = []
    for path in sorted((root / "cells").glob("*.parquet")):
        try:
            parts.append(_read_part(path))
        except (ValueError, OSError, pa.ArrowException) as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"{path} is damaged ({reason}): a run with --resume replaces it.") from None
    table = pa.concat_tables(parts) if parts else SCHEMA.empty_table()
    order = ("model", "revision", "window", "layer", "head", "beta", "eps")
    return table.sort_by([(name, "ascending") for name in order])


def admit(root: Path, settings: Settings, resume: bool) -> None:
    """Raises ValueError where a survey with these settings must not write; changes nothing."""
    if root.exists() and not root.is_dir():
        raise ValueError(f"{root} is a file: name a folder for the survey.")
    if not (root / MANIFEST).exists():
        if root.exists() and any(not path.name.startswith(".") for path in root.iterdir()):
            raise ValueError(f"{root} is not empty and holds no survey: name a new or empty folder.")
        return
    parts = len(list((root / "cells").glob("*.parquet")))
    if parts and not resume:
        raise ValueError(
            f"{root} already holds a survey ({parts} part files): continue it with --resume, "
            "or name another folder."
        )
    if parts:
        check_settings(root, settings)


def check_settings(root: Path, settings: Settings) -> None:
    """Raises ValueError, naming both, where a store was made with other settings than these."""
    theirs, ours = read_settings(root).as_dict(), settings.as_dict()
    differ = [name for name in theirs if theirs[name] != ours[name]]
    if differ:
        said = lambda values: ", ".join(f"{name} {values[name]}" for name in differ)
        raise ValueError(
            f"{root} was made with {said(theirs)} and this run asks for {said(ours)}: use the same, "
            "or name another folder."
        )


def _write_manifest(path: Path, settings: Settings) -> None:
    (path.parent / "cells").mkdir(exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(json.dumps({"schema": SCHEMA_VERSION, "settings": settings.as_dict()}, indent=1))
        _flush(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _lock(root: Path) -> Iterator[None]:
    with open(root / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"another survey is writing {root}: wait for it, or name another folder."
            ) from None
        yield


def _clean(root: Path) -> None:
    """Remove what a killed run left half written."""
    for folder in (root, root / "cells", root / "certificates"):
        for path in folder.glob(".*.tmp"):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _scan(store: Store) -> None:
    """Find the finished matrices; damaged part files are set aside."""
    for path in sorted((store.root / "cells").glob("*.parquet")):
        try:
            found = _checked(path, store)
        except (ValueError, OSError, pa.ArrowException) as error:
            folder = store.root / "set-aside"
            folder.mkdir(exist_ok=True)
            target = folder / path.name
            while target.exists():
                target = target.with_name(f"{target.name}.again")
            os.replace(path, target)
            store.set_aside.append((target, " ".join(str(error).split())))
        else:
            store.finished |= found


def _checked(path: Path, store: Store) -> set[str]:
    """Ids of the matrices in a part file.

    Raises:
        ValueError: not whole, not of this survey, or already stored.
    """
    table = _read_part(path)
    found: dict[str, list[float]] = {}
    for row in table.to_pylist():
        search = search_id(row["digest"], row["beta"], store.settings)
        where = (row[name] for name in ("model", "revision", "layer", "head", "window"))
        matrix = matrix_id(search, *where)
        if (search, matrix, cell_id(matrix, row["eps"])) != (row["search"], row["matrix"], row["cell"]):
            raise ValueError("an identifier does not fit its row and the settings of this survey")
        found.setdefault(matrix, []).append(row["eps"])
        for end in ("lower_certificate", "upper_certificate"):
            if store.settings.certificates and row[end] and not (store.root / row[end]).is_file():
                raise ValueError(f"{row[end]} is missing")
    for matrix, eps in found.items():
        if tuple(sorted(eps)) != store.settings.eps:
            raise ValueError("a matrix has tolerances missing or twice")
        if matrix in store.finished:
            raise ValueError("a matrix is stored twice")
    return set(found)


def _read_part(path: Path) -> pa.Table:
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        table = file.read()
    if not table.schema.equals(SCHEMA):
        raise ValueError("its columns are not those of a survey")
    return table


def _flush(path: Path) -> None:
    """To the disk, so that a rename never outlives its content."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
