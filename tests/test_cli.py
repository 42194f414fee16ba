"""The command line: what a newcomer types, and what happens when the file is wrong."""

import json
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy

from attnlab import cli
from attnlab._attention_file import read_matrix
from attnlab.certify import load


@pytest.fixture
def attention(rng):
    return rng.dirichlet(np.ones(6), 5)


def run(*arguments):
    return cli.main([str(x) for x in arguments])


def test_info(capsys):
    assert run("info", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["devices"]
    assert facts["packages"]["jax"]
    assert run("info") == 0


def test_bracket_writes_certificates_that_verify(tmp_path, attention, capsys):
    np.save(tmp_path / "a.npy", attention)
    out = tmp_path / "out"
    code = run("bracket", tmp_path / "a.npy", "--eps", "0.2,0.6", "--effort", "fast", "--out", out, "--json")
    assert code == 0
    result = json.loads(capsys.readouterr().out)
    assert [b["eps"] for b in result["brackets"]] == [0.2, 0.6]
    assert result == json.loads((out / "bracket.json").read_text())
    paths = []
    for b in result["brackets"]:
        assert b["lower"] <= b["upper"]
        for end in ("lower", "upper"):
            if b[f"{end}_certificate"]:
                paths.append(b[f"{end}_certificate"])
                assert load(paths[-1]).verify()
    assert {p.suffix for p in out.iterdir()} == {".npz", ".svg", ".png", ".json"}
    assert not [p for p in out.iterdir() if p.name.startswith(".")]
    assert run("verify", *paths) == 0
    assert run("verify", "--arb", paths[0]) == 0
    assert "holds" in capsys.readouterr().out


def test_table_for_people(tmp_path, attention, capsys):
    np.save(tmp_path / "a.npy", attention)
    assert run("bracket", tmp_path / "a.npy", "--eps", "0.5", "--effort", "fast") == 0
    assert "certified brackets on r_eps" in capsys.readouterr().out


def test_every_format_and_key_reads_the_same_matrix(tmp_path, rng):
    q, k = rng.normal(size=(2, 3, 4, 2)), rng.normal(size=(2, 3, 5, 2))
    logits = 0.5 * q @ k.swapaxes(-1, -2)
    raw = np.exp(logits)
    arrays = {"q": q, "k": k, "logits": logits, "attention": raw / raw.sum(-1, keepdims=True)}
    np.savez(tmp_path / "x.npz", **arrays)
    safetensors.numpy.save_file(
        {n: np.ascontiguousarray(a) for n, a in arrays.items()}, tmp_path / "x.safetensors"
    )
    for suffix in ("npz", "safetensors"):
        path = tmp_path / f"x.{suffix}"
        assert read_matrix(path, head=(1, 2)).kind == "attention"
        np.testing.assert_array_equal(read_matrix(path, "logits", (1, 2)).array, logits[1, 2])
        product = read_matrix(path, "q,k", (1, 2), beta=0.5)
        assert product.kind == "logits"
        np.testing.assert_allclose(product.array, logits[1, 2], atol=1e-15)
    np.savez(tmp_path / "y.npz", scores=logits, queries=q, keys=k, beta=0.5)
    np.testing.assert_array_equal(
        read_matrix(tmp_path / "y.npz", "logits=scores", (0, 1)).array, logits[0, 1]
    )
    named = read_matrix(tmp_path / "y.npz", "q=queries,k=keys", (0, 1))
    np.testing.assert_allclose(named.array, logits[0, 1], atol=1e-15)


def test_masks_and_log_weights_of_a_file_are_used(tmp_path, rng):
    q, k = rng.normal(size=(3, 2)), rng.normal(size=(3, 2))
    np.savez(tmp_path / "x.npz", q=q, k=k, mask=np.tril(np.ones((3, 3), bool)), log_weights=np.arange(3.0))
    logits = read_matrix(tmp_path / "x.npz").array
    assert (logits[np.triu_indices(3, 1)] == -np.inf).all()
    np.testing.assert_allclose(logits[2], q[2] @ k.T + np.arange(3.0))


def bad_files(folder):
    good = np.full((2, 2), 0.5)
    np.save(folder / "good.npy", good)
    np.save(folder / "nan.npy", np.array([[np.nan, 1.0]]))
    np.save(folder / "negative.npy", np.array([[1.5, -0.5]]))
    np.save(folder / "off.npy", np.array([[0.5, 0.5], [0.5, 0.6]]))
    np.save(folder / "text.npy", np.array([["a"]]))
    np.save(folder / "stack.npy", np.zeros((2, 3, 3)))
    np.save(folder / "flat.npy", np.ones(3))
    np.save(folder / "pickled.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(folder / "names.npz", scores=good)
    np.savez(folder / "pickled.npz", attention=np.array([{}], dtype=object))
    np.savez(folder / "sizes.npz", q=np.ones((2, 3)), k=np.ones((2, 4)))
    whole = (folder / "names.npz").read_bytes()
    (folder / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.npy").write_bytes(b"")
    (folder / "junk.safetensors").write_bytes(b"junk")
    (folder / "notes.txt").write_text("hello")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["none.npy"], "is not a file"),
        (["nan.npy"], "is not finite"),
        (["negative.npy"], "is negative"),
        (["off.npy"], "row 1 of A sums to 1.1, off 1 by 0.1"),
        (["text.npy"], "not real numbers"),
        (["stack.npy"], "choose one matrix with --head"),
        (["stack.npy", "--head", "5"], "outside 0..1"),
        (["stack.npy", "--head", "x"], "numbers separated by commas"),
        (["flat.npy"], "a matrix is needed"),
        (["pickled.npy"], "pickled objects"),
        (["pickled.npz"], "pickled objects"),
        (["names.npz"], "it has scores"),
        (["names.npz", "--key", "logits"], "no array 'logits'; it has scores"),
        (["names.npz", "--key", "weights"], "--key must be"),
        (["good.npy", "--key", "q,k"], "must be attention or logits"),
        (["sizes.npz"], "different dimensions 3 and 4"),
        (["cut.npz"], "cannot be read"),
        (["empty.npy"], "cannot be read"),
        (["junk.safetensors"], "cannot be read"),
        (["notes.txt"], "unknown file type"),
        (["good.npy", "--eps", "0"], "eps must lie"),
        (["good.npy", "--eps", "2.5"], "eps must lie"),
        (["good.npy", "--eps", "a"], "numbers separated by commas"),
        (["good.npy", "--effort", "huge"], "effort must be one of"),
        (["good.npy", "--bogus"], "No such option"),
    ],
)
def test_bad_input_is_one_sentence_exit_2_and_nothing_written(tmp_path, capsys, arguments, reason):
    bad_files(tmp_path)
    file, *options = arguments
    out = tmp_path / "out"
    assert run("bracket", tmp_path / file, *options, "--out", out) == 2
    captured = capsys.readouterr()
    assert reason in " ".join(captured.err.split())
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert not out.exists()


def test_normalize_repairs_row_sums(tmp_path, capsys):
    np.save(tmp_path / "a.npy", np.array([[2.0, 2.0], [1.0, 3.0]]))
    assert (
        run("bracket", tmp_path / "a.npy", "--normalize", "--eps", "0.1", "--effort", "fast", "--json") == 0
    )
    assert json.loads(capsys.readouterr().out)["brackets"][0]["lower"] == 2
    np.save(tmp_path / "z.npy", np.zeros((2, 2)))
    assert run("bracket", tmp_path / "z.npy", "--normalize") == 2


def test_verify_exit_codes(tmp_path, attention, capsys):
    np.save(tmp_path / "a.npy", attention)
    run("bracket", tmp_path / "a.npy", "--eps", "0.3", "--effort", "fast", "--out", tmp_path / "o")
    path = next((tmp_path / "o").glob("rank-lower-k*.npz"))
    certificate = load(path)
    detached = tmp_path / "d.npz"
    certificate.detach().save(detached)
    assert run("verify", detached) == 1
    assert run("verify", detached, "--subject", tmp_path / "a.npy") == 0
    np.save(tmp_path / "b.npy", attention[::-1])
    assert run("verify", detached, "--subject", tmp_path / "b.npy") == 1
    tampered = type(certificate)(
        certificate.kind, {**certificate.claim, "error": 0.99}, certificate.witness, certificate.subject
    )
    tampered.save(tmp_path / "t.npz")
    assert run("verify", path, tmp_path / "t.npz", "--json") == 1
    assert [row["holds"] for row in json.loads(capsys.readouterr().out.splitlines()[-1])] == [True, False]
    (tmp_path / "junk.npz").write_bytes(b"junk")
    assert run("verify", tmp_path / "junk.npz") == 2
    assert run("verify", tmp_path / "missing.npz") == 2


def test_verify_loads_no_jax(tmp_path, attention):
    np.save(tmp_path / "a.npy", attention)
    run("bracket", tmp_path / "a.npy", "--eps", "0.3", "--effort", "fast", "--out", tmp_path / "o")
    path = next((tmp_path / "o").glob("rank-upper-k*.npz"))
    code = (
        "import sys; from attnlab import cli; "
        f"assert cli.main(['verify', {str(path)!r}]) == 0; assert 'jax' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
