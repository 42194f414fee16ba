"""Kind fusion-upper: integers only, and no tampering passes."""

import json
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from attnlab import certify
from attnlab.certify._fusion import (
    Block,
    HeadData,
    encode_blocks,
    encode_heads,
    ratios,
    value_scale,
)


def sigmoids(d: int, weight: int = 1) -> list[HeadData]:
    unit = [tuple(int(i == j) for i in range(d)) for j in range(d)]
    one, zero = Fraction(1), Fraction(0)
    return [HeadData(((0,) * d, e), (one, Fraction(weight)), ((zero,), (one,))) for e in unit]


def cube(d: int, weight: int = 1) -> HeadData:
    corners = tuple(product((0, 1), repeat=d))
    return HeadData(
        corners,
        tuple(Fraction(weight ** sum(c)) for c in corners),
        tuple((Fraction(sum(c)),) for c in corners),
    )


def certificate(heads: list[HeadData], fused: HeadData, atoms: int) -> certify.Certificate:
    parts = ratios(heads, value_scale(heads))
    return certify.Certificate(
        kind="fusion-upper",
        claim={"atoms": atoms},
        witness={
            "head": encode_heads([fused]),
            "blocks": encode_blocks([Block((i,), r) for i, r in enumerate(parts)]),
        },
        subject={"heads": encode_heads(heads)},
    )


@pytest.mark.parametrize("d", [1, 2, 5])
def test_cube_is_the_sum_of_sigmoids(d, tmp_path):
    cert = certificate(sigmoids(d), cube(d), 2**d)
    verdict = cert.verify()
    assert verdict.holds
    assert verdict.bound == 2**d
    cert.save(tmp_path / "c.npz")
    assert certify.load(tmp_path / "c.npz").verify().holds
    assert not certificate(sigmoids(d), cube(d), 2**d - 1).verify().holds


def test_integers_beyond_machine_words_stay_exact():
    big = 10**40 + 1
    assert certificate(sigmoids(3, big), cube(3, big), 8).verify().holds
    assert not certificate(sigmoids(3, big), cube(3, big - 1), 8).verify().holds


def test_every_altered_number_is_noticed():
    good = certificate(sigmoids(2), cube(2), 4)
    for name, value in good.witness.items():
        data = json.loads(str(value[()]))
        for path in _leaves(data):
            altered = json.loads(str(value[()]))
            *steps, last = path
            place = altered
            for step in steps:
                place = place[step]
            old = place[last]
            place[last] = old + 1 if isinstance(old, int) else str(Fraction(old) + 1)
            text = np.array(json.dumps(altered))
            bad = certify.Certificate("fusion-upper", good.claim, {**good.witness, name: text}, good.subject)
            assert not bad.verify().holds, (name, path)


def test_another_subject_is_refused():
    good = certificate(sigmoids(2), cube(2), 4)
    other = encode_heads(sigmoids(2, 3))
    bad = certify.Certificate("fusion-upper", good.claim, good.witness, {"heads": other})
    assert not bad.verify().holds
    assert not good.verify({"heads": other}).holds


@pytest.mark.parametrize("name", ["head", "blocks"])
@pytest.mark.parametrize("text", ["", "[]", "{}", "[[]]", "null", "[1]", '[{"heads":[0.0]}]'])
def test_malformed_witness_does_not_hold(name, text):
    good = certificate(sigmoids(2), cube(2), 4)
    witness = {**good.witness, name: np.array(text)}
    assert not certify.Certificate("fusion-upper", good.claim, witness, good.subject).verify().holds


def test_an_atom_of_weight_zero_is_refused():
    # sigma(q) + sigma(q) as P/Q = 2x/(1+x), multiplied by (1-x): weights 1, -1 are not a head.
    heads = sigmoids(1)
    parts = ratios(heads, 1)
    x = parts[0].numerators[0]
    times = type(parts[0])((x * (1 - x),), parts[0].denominator * (1 - x))
    good = certificate(heads, cube(1), 2)
    witness = {**good.witness, "blocks": encode_blocks([Block((0,), times)])}
    verdict = certify.Certificate("fusion-upper", good.claim, witness, good.subject).verify()
    assert not verdict.holds
    assert "not positive" in verdict.statement


def _leaves(data, path=()):
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _leaves(value, (*path, index))
    else:
        yield path
