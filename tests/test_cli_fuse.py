"""``attnlab fuse``: tables, JSON, certificates on disk, and one sentence with exit code 2 for bad input."""

import json
import os
from fractions import Fraction

import pytest

from attnlab import certify
from attnlab.cli import main
from attnlab.fusion import fuse
from attnlab.fusion._heads_file import parse_heads, read_heads

W2 = [{"keys": [[0, 0], [1, 0]], "values": [0, 1]}, {"keys": [[0, 0], [0, 1]], "values": [0, 1]}]
LINE = [{"keys": [0, f"{a}/2"], "weights": [1, 1], "values": [0, "1/3"]} for a in (1, 2, 3)]


def written(tmp_path, data):
    path = tmp_path / "heads.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return str(path)


def test_table(tmp_path, capsys):
    assert main(["fuse", written(tmp_path, W2)]) == 0
    out = capsys.readouterr().out
    assert "exactly 4 atoms" in out
    assert "(1, 1)" in out
    assert "by vertices" in out


def test_json_and_certificates(tmp_path, capsys):
    folder = tmp_path / "out"
    assert main(["fuse", written(tmp_path, LINE), "--json", "--out", str(folder)]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["lower"], data["upper"], data["closed"], data["method"]) == (7, 7, True, "exhaustive")
    assert json.loads((folder / "fusion.json").read_text()) == data
    for path in data["certificates"].values():
        assert certify.load(path).verify().holds
    (fused,) = parse_heads([data["head"]])
    assert fuse([fused]).upper == 7
    assert {str(x) for (x,) in data["head"]["keys"]} >= {"0", "1/2", "3"}
    assert main(["verify", *data["certificates"].values()]) == 0


def test_what_a_solver_prints_stays_out_of_the_json(tmp_path, capfd, monkeypatch):
    """HiGHS writes a line to the C stdout in rare cases."""
    from attnlab.fusion import _fuse

    split = _fuse.split
    monkeypatch.setattr(_fuse, "split", lambda *a: (os.write(1, b"noise\n"), split(*a))[1])
    assert main(["fuse", written(tmp_path, LINE), "--json"]) == 0
    captured = capfd.readouterr()
    assert json.loads(captured.out)["lower"] == 7
    assert "noise" in captured.err


def test_window_option(tmp_path, capsys):
    assert main(["fuse", written(tmp_path, LINE), "--window", "8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["window"] == 9
    assert main(["fuse", written(tmp_path, LINE), "--window", "3"]) == 2
    assert "least usable integer window is 6" in capsys.readouterr().err


def test_an_open_bracket_is_printed_as_one(tmp_path, capsys):
    heads = [{"keys": [0, a], "values": [0, 1]} for a in (1, 3, 4, 5, 7, 9)]
    assert main(["fuse", written(tmp_path, heads), "--time-limit", "0.5"]) == 0
    assert " to " in capsys.readouterr().out


def test_long_tables_are_cut(tmp_path, capsys):
    heads = [{"keys": [0, 2**j], "values": [0, 1]} for j in range(6)]
    assert main(["fuse", written(tmp_path, heads)]) == 0
    assert "24 more atoms" in capsys.readouterr().out


def test_exponents_with_an_irrational_basis(tmp_path):
    data = {
        "heads": [{"exponents": [[0, 0], [1, 0]], "values": [0, 1]},
                  {"exponents": [[0, 0], [0, 1]], "values": [0, 1]}],
        "basis": [[1], [1.4142135623730951]],
    }  # fmt: skip
    heads = read_heads(written(tmp_path, data))
    assert heads[0].basis == ((1,), (2**0.5,))
    assert fuse(heads).lower == 4


def test_numbers_beyond_machine_integers_are_exact(tmp_path):
    big = 10**30
    (head,) = read_heads(
        written(tmp_path, [{"keys": [0, big], "weights": [big, f"1/{big}"], "values": [0, big]}])
    )
    assert head.weights == (big, Fraction(1, big))
    assert head.basis == ((big,),)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("not json", "is not JSON"),
        ("[" * 100_000, "not JSON|nested too deeply"),
        ("[]", "there are no heads"),
        ("{}", "an empty object"),
        ("3", "there are no heads"),
        ("[3]", "head 0 must be an object"),
        ('{"heads": [{"values": [1]}]}', "either keys or exponents"),
        ('[{"keys": [0, 1], "value": [0, 1]}]', "head 0 must be an object"),
        ('[{"keys": [0, 1], "weights": [1, -1], "values": [0, 1]}]', "head 0: weights\\[1\\] is -1"),
        ('[{"keys": [0, 1], "weights": [1, 0], "values": [0, 1]}]', "must be positive"),
        ('[{"keys": [0, 0.1], "values": [0, 1]}]', 'float 0.1; write it as text \\("0.1"\\)'),
        ('[{"keys": [0, 1], "values": [0, NaN]}]', "NaN"),
        ('[{"keys": [0, 1], "values": [0, Infinity]}]', "Infinity"),
        ('[{"keys": [0, 1], "values": [0, "1/0"]}]', "divides by zero"),
        ('[{"keys": [], "values": []}]', "empty"),
        ('[{"keys": [0, 1], "values": [0, [1, 2]]}]', "more than one shape"),
        ('[{"keys": [0, 1], "values": [0, 1]}, {"keys": [0, 1], "values": [[0], [1]]}]', "value_shape"),
        (
            '[{"keys": [0, 1], "values": [0, 1]}, {"keys": [[0, 0], [1, 1]], "values": [0, 1]}]',
            "one dimension",
        ),
        ('[{"keys": [0, 1], "values": [0, 1]}, {"exponents": [0, 1], "values": [0, 1]}]', "same for all"),
        ('{"heads": [{"keys": [0, 1], "values": [0, 1]}], "basis": [[1]]}', "basis belongs to exponents"),
        ('{"heads": [], "x": 1}', "heads, x"),
        ('[{"keys": [0, ' + "9" * 5000 + '], "values": [0, 1]}]', "cannot be read"),
    ],
)
def test_bad_files_are_one_sentence_and_exit_code_2(tmp_path, capsys, data, sentence):
    import re

    assert main(["fuse", written(tmp_path, data)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.search(sentence, captured.err)
    assert captured.err.count("\n") <= 2


def test_missing_and_binary_files(tmp_path, capsys):
    assert main(["fuse", str(tmp_path / "absent.json")]) == 2
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00\x81")
    assert main(["fuse", str(tmp_path / "binary.json")]) == 2
    assert "is not text" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option", [("--window", "x"), ("--window", "-1"), ("--time-limit", "0"), ("--nope", "1")]
)
def test_bad_options(tmp_path, option):
    assert main(["fuse", written(tmp_path, W2), *option]) == 2
