"""The store: one dataset for every reader, damage found and repaired, never two writers."""

import errno
import json
import os
import resource
import shutil
import signal
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnlab.certify import load
from attnlab.survey import SCHEMA, Settings, open_store, plan, read_cells, read_settings, run, verify_store

from .helpers import cells_of, line_heads

SETTINGS = Settings((0.1, 0.5))
MATRICES = plan(line_heads(), [1.0], SETTINGS)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A finished survey with one part file per matrix."""
    out = tmp_path_factory.mktemp("survey") / "store"
    outcome = run(MATRICES, out, SETTINGS, flush=0)
    assert (outcome.cells, outcome.computed, outcome.problems) == (12, 12, 0)
    return out


@pytest.fixture
def store(original, tmp_path):
    """A copy that a test may damage."""
    return shutil.copytree(original, tmp_path / "store")


def parts(out):
    return sorted((out / "cells").iterdir())


def test_cells_hold_what_was_asked_for(original):
    table = read_cells(original)
    assert table.schema.equals(SCHEMA)
    rows = table.to_pylist()
    assert len({row["cell"] for row in rows}) == len(rows) == 12
    assert [row["eps"] for row in rows] == list(SETTINGS.eps) * 6
    for row in rows:
        assert 1 <= row["lower"] <= row["upper"] <= 8
        assert row["closed"] == (row["lower"] == row["upper"])
        assert row["lower_error"] > row["eps"] >= row["upper_error"]
        for other in ("svd_upper", "row_cover", "cross"):
            assert row["lower"] <= row[other] <= 8
        assert row["svd_dimension"] <= 1  # logits q_i k_j
        assert row["problem"] is None


def pandas_reads(pandas, cells):
    frame = pandas.read_parquet(cells)
    return len(frame), frame["upper"].sum()


def polars_reads(polars, cells):
    frame = polars.read_parquet(cells / "*.parquet")
    return len(frame), frame["upper"].sum()


def duckdb_reads(duckdb, cells):
    return duckdb.sql(f"select count(*), sum(upper) from '{cells}/*.parquet'").fetchall()[0]


def pyarrow_reads(_, cells):
    table = pa.dataset.dataset(cells).to_table()
    return len(table), sum(table["upper"].to_pylist())


READERS = {
    "pyarrow.dataset": pyarrow_reads,
    "pandas": pandas_reads,
    "polars": polars_reads,
    "duckdb": duckdb_reads,
}


@pytest.mark.parametrize("name", READERS)
def test_the_folder_is_one_dataset(name, original):
    reader = pytest.importorskip(name, reason=f"{name} is not installed: other readers are tested")
    expected = sum(read_cells(original)["upper"].to_pylist())
    assert READERS[name](reader, original / "cells") == (12, expected)


def test_certificates_are_verified_from_the_disk(original):
    assert set(verify_store(original).values()) == {""}
    row = read_cells(original).to_pylist()[0]
    certificate = load(original / row["upper_certificate"])
    assert not certificate.verify()  # the subject is stored once, beside it
    with np.load((original / row["upper_certificate"]).with_name("subject.npz")) as data:
        assert certificate.verify({"logits": data["logits"]})


def test_verification_finds_what_does_not_fit(store):
    rows = read_cells(store).to_pylist()
    first, second, third = (store / "certificates" / s for s in dict.fromkeys(r["search"] for r in rows[:6]))
    (first / "subject.npz").write_bytes(b"no")
    shutil.copy(first.with_name(third.name) / "subject.npz", second / "subject.npz")
    damaged = store / rows[4]["upper_certificate"]
    damaged.write_bytes(damaged.read_bytes()[:-40])
    faults = verify_store(store)
    said = [faults[row["cell"]] for row in rows]
    assert "cannot be read" in said[0]
    assert "another matrix" in said[2]
    assert "not a readable certificate" in said[4]
    assert said[6:] == [""] * 6


def test_resume_recomputes_nothing_finished(store):
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*.parquet")}
    outcome = run(MATRICES, store, SETTINGS, resume=True)
    assert (outcome.cells, outcome.computed) == (12, 0)
    assert before == {path: path.stat().st_mtime_ns for path in store.rglob("*.parquet")}


def test_a_store_grows_by_other_heads(store):
    more = plan(line_heads(7), [1.0], SETTINGS)
    assert run(more, store, SETTINGS, resume=True).computed == 2
    assert len(read_cells(store)) == 14


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 16
    path.write_bytes(data)


def rewrite(change):
    def damage(path):
        rows = pq.ParquetFile(path).read().to_pylist()
        change(rows)
        pq.write_table(type(pq.ParquetFile(path).read()).from_pylist(rows, SCHEMA), path)

    return damage


def drop_certificate(path):
    row = pq.ParquetFile(path).read().to_pylist()[0]
    (path.parents[1] / row["upper_certificate"]).unlink()


DAMAGE = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "empty": lambda path: path.write_bytes(b""),
    "bit flipped": flip,
    "another table": lambda path: pq.write_table(pq.read_table(path).select(["cell"]), path),
    "relabelled": rewrite(lambda rows: [row.update(head=row["head"] + 5) for row in rows]),
    "cell lost": rewrite(lambda rows: rows.pop()),
    "cell double": rewrite(lambda rows: rows.append(rows[0])),
    "stored twice": lambda path: shutil.copy(path, path.with_name("part-zz.parquet")),
    "certificate gone": drop_certificate,
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_part_is_set_aside_and_computed_again(kind, store, original):
    DAMAGE[kind](parts(store)[2])
    with open_store(store, SETTINGS, resume=True) as opened:
        assert len(opened.set_aside) == 1
        assert opened.set_aside[0][0].parent == store / "set-aside"
        assert len(opened.finished) == (6 if kind == "stored twice" else 5)
    run(MATRICES, store, SETTINGS, resume=True)
    assert cells_of(store).equals(cells_of(original))
    assert set(verify_store(store).values()) == {""}


def test_reading_a_damaged_store_names_the_fix(store):
    flip(parts(store)[0])
    with pytest.raises(ValueError, match=r"is damaged .* --resume replaces it"):
        read_cells(store)


def test_half_written_files_of_a_killed_run_are_removed(store):
    left = [
        store / "cells" / ".part-1.parquet.tmp",
        store / ".survey.json.tmp",
        store / "certificates" / ".abc.tmp" / "x",
    ]
    left[2].parent.mkdir()
    for path in left:
        path.write_bytes(b"half")
    assert run(MATRICES, store, SETTINGS, resume=True).computed == 0
    assert not any(path.exists() for path in left)


def test_other_settings_are_refused_naming_both(store):
    other = replace(SETTINGS, effort="normal", seed=3)
    with pytest.raises(
        ValueError, match=r"made with effort fast, seed 0 and .* asks for effort normal, seed 3"
    ):
        run(MATRICES, store, other, resume=True)
    assert read_settings(store) == SETTINGS


def test_another_schema_is_refused_naming_both(store):
    manifest = json.loads((store / "survey.json").read_text())
    (store / "survey.json").write_text(json.dumps({**manifest, "schema": 0}))
    with pytest.raises(ValueError, match="schema version 0; this attnlab writes 1"):
        run(MATRICES, store, SETTINGS, resume=True)


def test_folders_that_cannot_be_used(store, tmp_path):
    with pytest.raises(ValueError, match=r"already holds a survey .* --resume"):
        run(MATRICES, store, SETTINGS)
    (store / "survey.json").write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        run(MATRICES, store, SETTINGS, resume=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file"):
        run(MATRICES, tmp_path / "file", SETTINGS)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("")
    with pytest.raises(ValueError, match="holds no survey"):
        run(MATRICES, tmp_path / "full", SETTINGS)
    with pytest.raises(ValueError, match="holds no survey"):
        read_cells(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_a_second_writer_is_refused(store):
    with (
        open_store(store, SETTINGS, resume=True),
        pytest.raises(ValueError, match="another survey is writing"),
        open_store(store, SETTINGS, resume=True),
    ):
        pass


def test_no_certificates_where_none_are_wanted(tmp_path):
    settings = replace(SETTINGS, certificates=False)
    run(plan(line_heads(1), [1.0], settings), tmp_path / "s", settings)
    assert not (tmp_path / "s" / "certificates").exists()
    assert set(verify_store(tmp_path / "s").values()) == {"certificates were not kept"}
    assert run(plan(line_heads(1), [1.0], settings), tmp_path / "s", settings, resume=True).computed == 0


def test_a_full_disk_leaves_the_store_intact(store, original):
    """The kernel refuses to write files beyond a size, as it would on a full disk."""
    more = plan(line_heads(7), [1.0], SETTINGS)
    before = sorted(path for path in store.rglob("*") if path.is_file())
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600, limits[1]))
    try:
        with pytest.raises(OSError) as caught:  # noqa: PT011
            run(more, store, SETTINGS, resume=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.errno in (errno.EFBIG, errno.ENOSPC)
    assert sorted(path for path in store.rglob("*") if path.is_file()) == before
    assert cells_of(store).equals(cells_of(original))
    assert run(more, store, SETTINGS, resume=True).computed == 2


def test_a_read_only_folder_is_an_error_and_nothing_else(store, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("attnlab.survey._store.os.replace", refuse)
    with pytest.raises(OSError, match="No space left"):
        run(plan(line_heads(7), [1.0], SETTINGS), store, SETTINGS, resume=True)
    assert not list(store.rglob("*.tmp"))
