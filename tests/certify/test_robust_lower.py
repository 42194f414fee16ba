"""Robust lower bounds: known answers, false claims, and witnesses that prove nothing."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest

from attnlab import HeadSum, sigmoid_sum
from attnlab.certify import Certificate, load
from attnlab.fusion import exact_sigmoid_sum, robust_certificate
from attnlab.heads import Head


def text(data):
    return np.array(json.dumps(data))


def certificate(atoms=4, eps="49/100", norm="2", **changes):
    """W_2: one direction for each pair of signs; between the two with limit 1 lies (1, 2) with limit 2."""
    heads = [{"keys": [["0", "0"], key], "values": [["0"], ["1"]]} for key in (["1", "0"], ["0", "1"])]
    witness = {
        "directions": text([[2, 1], [-2, -1], [2, -1], [-1, 3]]),
        "mixtures": text([[1, 1]]),
        "pairs": text([]),
    }
    subject = {"heads": text(heads)}
    for name, change in changes.items():
        (witness if name in witness else subject)[name] = change
    return Certificate("robust-lower", {"atoms": atoms, "eps": eps, "norm": norm}, witness, subject)


def test_four_signs_by_hand():
    verdict = certificate().verify()
    assert verdict.holds
    assert verdict.bound == 4
    assert "4 atoms" in verdict.statement
    assert "49/100" in verdict.statement
    # An explicit point for the one pair that needs it is as good as a common mixture.
    assert certificate(mixtures=text([]), pairs=text([[2, 3, [[1, 1]]]])).verify()


@pytest.mark.parametrize(
    "claim", [(5, "1/10"), (4, "1/2"), (4, "-1/10"), (4, "1/2", "3"), (4.0, "0"), (0, "0")]
)
def test_rejects_false_claims(claim):
    assert not certificate(*claim).verify()


@pytest.mark.parametrize(
    "changes",
    [
        {"directions": text([[2, 1], [-2, -1], [2, -1], [2, 2]])},  # twice the same sign
        {"directions": text([[2, 1], [-2, -1], [2, -1], [0, 1]])},  # not generic
        {"directions": text([[2, 1], [-2, -1], [2, -1], [-1, 2.5]])},
        {"directions": text([[2, 1, 0]] * 4)},
        {"directions": text([])},
        {"directions": np.zeros((4, 2))},
        {"mixtures": text([])},  # nothing separates the two with limit 1
        {"mixtures": text([[0, 1]])},
        {"mixtures": text([[-1, 2]])},  # not on the segment
        {"mixtures": text([]), "pairs": text([[2, 3, [[-1, 2]]]])},
        {"pairs": text("all")},
        {"heads": text([{"keys": [["0"], ["0"]], "values": [["0"], ["1"]]}])},
        {"heads": text([])},
    ],
)
def test_rejects_bad_witnesses(changes):
    assert not certificate(**changes).verify()


def test_tampered_file_fails(tmp_path):
    made = robust_certificate(exact_sigmoid_sum(3), 0.49)
    made.save(tmp_path / "c.npz")
    assert load(tmp_path / "c.npz").verify()
    entries = dict(np.load(tmp_path / "c.npz"))
    entries["claim"] = np.array('{"atoms": 9, "eps": "49/100", "norm": "2"}')
    np.savez(tmp_path / "d.npz", **entries)
    assert not load(tmp_path / "d.npz").verify()


def test_search_and_checker_agree(rng):
    """Random heads with vector values, whose cones need points between: the claim is what is proved."""
    for norm in (1, 2, math.inf):
        heads = [Head(rng.normal(size=(3, 2)), rng.normal(size=(3, 2))) for _ in range(2)]
        made = robust_certificate(HeadSum(heads), 0.3, norm=norm)
        verdict = made.verify()
        assert verdict.holds
        assert verdict.bound == made.claim["atoms"]


def test_floats_are_exact():
    """The largest float below one half still needs all atoms, and the sentence does not round it up."""
    made = robust_certificate(sigmoid_sum(2), math.nextafter(0.5, 0))
    assert Fraction(made.claim["eps"]) < Fraction(1, 2)
    assert made.verify().holds
    assert "within 0.499999 (rounded down)" in made.verify().statement
