"""``attnlab survey``: what a newcomer types, and what goes wrong."""

import json

import numpy as np
import pytest

from attnlab import cli

from .helpers import line_heads


def run(*arguments):
    return cli.main(["survey", *map(str, arguments)])


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "toy.npz"
    np.savez(path, logits=np.array([h.logits for h in line_heads(4)]).reshape(2, 2, 8, 8))
    return path


def test_survey_resume_and_dry_run(source, tmp_path, capsys):
    out = tmp_path / "out"
    common = (source, "--eps", "0.1,0.2,0.4,0.5", "--betas", "2", "--out", out, "--json")
    assert run(*common, "--dry-run") == 0
    predicted = json.loads(capsys.readouterr().out)
    assert (predicted["cells"], predicted["stored"], len(predicted["buckets"])) == (16, 0, 1)
    assert predicted["buckets"][0]["source"] == "one matrix solved here"
    assert predicted["seconds"] > 0
    assert predicted["memory_mb"] > 0
    assert not out.exists()
    assert run(*common) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["cells"], done["computed"], done["problems"], done["proved"]) == (16, 16, 0, 16)
    assert {p.name for p in out.iterdir() if p.name[0] != "."} == {
        "survey.json",
        "cells",
        "certificates",
        "figures",
        "report.md",
        "report.html",
    }
    assert run(*common, "--resume") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["computed"] == 0
    assert "16 of 16 cells are stored already" in captured.err
    assert run(*common, "--dry-run") == 0
    predicted = json.loads(capsys.readouterr().out)
    assert (predicted["stored"], predicted["seconds"]) == (16, 0)
    assert predicted["buckets"][0]["source"] == "16 stored cells"
    damaged = next((out / "cells").iterdir())
    damaged.write_bytes(b"")
    assert run(*common, "--resume") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["computed"] == 16
    assert "set aside" in captured.err


def test_text_for_people(source, tmp_path, capsys):
    out = tmp_path / "out"
    chosen = (source, "--eps", "0.5", "--layers", "0", "--heads", "1", "--out", out)
    assert run(*chosen, "--dry-run") == 0
    text = capsys.readouterr().out
    assert "1 cells, 0 of them stored; nothing is written" in text
    assert "8 x 8" in text
    assert run(*chosen) == 0
    captured = capsys.readouterr()
    assert "1 computed" in captured.out
    assert "1 proved by the certificates read back from the store" in captured.out
    assert "1 of 1 cells" in captured.err


def test_a_failed_proof_is_exit_code_one(source, tmp_path, capsys):
    out = tmp_path / "out"
    common = (source, "--eps", "0.5", "--layers", "0", "--out", out)
    assert run(*common) == 0
    next(out.glob("certificates/*/subject.npz")).write_bytes(b"")
    assert run(*common, "--resume") == 1
    assert "1 cells are not proved" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--eps", "a"], "--eps must be numbers"),
        (["--eps", "3"], "strictly between 0 and 2"),
        (["--betas", "0"], "betas must be positive"),
        (["--layers", "9"], "layers"),
        (["--effort", "heroic"], "effort must be one of"),
        (["--precision", "int8"], "precision must be float32 or float64"),
        (["--engine", "dask"], "engine must be local or ray"),
        (["--engine", "ray", "--address", "auto", "--workers", "2"], "workers is for a cluster started here"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_two(arguments, said, source, tmp_path, capsys):
    assert run(source, "--out", tmp_path / "out", *arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.strip().splitlines()
    assert line.startswith("attnlab: ")
    assert said in line
    assert not list(tmp_path.glob("out/cells/*"))


def test_stores_that_do_not_fit(source, tmp_path, capsys):
    out = tmp_path / "out"
    assert run(source, "--eps", "0.5", "--out", out) == 0
    before = sorted((p, p.stat().st_mtime_ns) for p in (out / "cells").iterdir())
    capsys.readouterr()
    for arguments, said in (
        (["--eps", "0.5"], "--resume"),
        (["--eps", "0.4", "--resume"], "made with eps [0.5] and this run asks for eps [0.4]"),
        (["--eps", "0.4", "--dry-run"], "made with eps [0.5] and this run asks for eps [0.4]"),
    ):
        assert run(source, *arguments, "--out", out) == 2
        assert said in capsys.readouterr().err
    assert before == sorted((p, p.stat().st_mtime_ns) for p in (out / "cells").iterdir())
    assert run("nowhere.npz", "--out", tmp_path / "other") == 2
    assert "nowhere.npz is not a file" in capsys.readouterr().err


def test_ray_is_named_where_it_is_missing(source, tmp_path, capsys, monkeypatch):
    import importlib

    real = importlib.import_module

    def without(name, *rest):
        if name == "ray":
            raise ModuleNotFoundError("No module named 'ray'", name="ray")
        return real(name, *rest)

    monkeypatch.setattr("attnlab._extras.importlib.import_module", without)
    assert run(source, "--eps", "0.5", "--out", tmp_path / "out", "--engine", "ray") == 2
    assert "pip install 'attnlab[ray]'" in capsys.readouterr().err
    assert run(source, "--eps", "0.5", "--out", tmp_path / "out") == 0  # nothing stands in the way
