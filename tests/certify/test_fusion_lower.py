"""Kind fusion-lower: known bounds hold, and nothing that was tampered with proves too much."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab import certify
from attnlab.certify._fusion import encode_heads
from attnlab.certify._fusion_coprime import coprime
from attnlab.fusion import ExactHead, exact_sigmoid_sum, fuse


def steps(*sizes):
    return [ExactHead([[0], [a]], [1, 1], [0, 1]) for a in sizes]


def shifts(d):
    return [ExactHead([[0], [1]], [1, j + 1], [0, 1]) for j in range(d)]


CASES = {
    "vertices": (exact_sigmoid_sum(2), 4),
    "radix": (steps(1, 2, 4), 8),
    "ray": (shifts(3), 4),
    "exhaustive": (steps(1, 2, 3), 7),
    "exhaustive+vertices": (
        [ExactHead([[0, 0], [a, 0]], [1, 1], [0, 1]) for a in (1, 2, 3)]
        + [ExactHead([[0, 0], [0, 1]], [1, 1], [0, 1])],
        14,
    ),
    "valuations": (steps(10**20 + 1, 10**20 + 2, 10**20 + 4), 8),
    "limits": ([ExactHead([[0], [10**20 + a]], [1, 2 + a], [0, 1]) for a in range(2)], 2),
}
JUNK = [
    None,
    "",
    "x",
    "1/0",
    -1,
    0,
    1,
    2,
    7,
    0.5,
    True,
    10**30,
    [],
    [[]],
    {},
    "0x10",
    [0],
    [[0, 1]],
    "9" * 5000,
]


@pytest.fixture(params=CASES, scope="module")
def case(request):
    heads, atoms = CASES[request.param]
    result = fuse(heads)
    assert result.method == request.param
    assert result.lower == atoms
    return result.certificate.lower, atoms


def test_holds_and_refuses_one_more(case, tmp_path):
    cert, atoms = case
    verdict = cert.verify()
    assert verdict.holds
    assert verdict.bound == atoms
    assert verdict.margin == 0
    cert.save(tmp_path / "c.npz")
    assert certify.load(tmp_path / "c.npz").verify().holds
    for claim in (atoms + 1, atoms + 0.0, True, str(atoms), None):
        changed = certify.Certificate(cert.kind, {"atoms": claim}, cert.witness, cert.subject)
        assert not changed.verify().holds


def test_no_altered_entry_proves_too_much(case, rng):
    """Parts of the witness replaced by junk: no exception, and never a bound above the truth.

    (The claim itself may survive: another direction can expose the same vertex.)
    """
    cert, atoms = case
    data = json.loads(str(cert.witness["parts"][()]))
    places = list(_leaves(data))
    for path in places if len(places) < 30 else [places[i] for i in rng.choice(len(places), 30, False)]:
        for junk in JUNK:
            changed = json.loads(json.dumps(data))
            _set(changed, path, junk)
            verdict = _with(cert, changed, atoms + 1).verify()
            assert not verdict.holds, (path, junk)


def test_numbers_off_by_one_never_prove_too_much(case):
    cert, atoms = case
    data = json.loads(str(cert.witness["parts"][()]))
    for path in _leaves(data):
        changed = json.loads(json.dumps(data))
        old = _get(changed, path)
        if isinstance(old, int):
            for new in (old + 1, old - 1, 2 * old, -old):
                _set(changed, path, new)
                assert not _with(cert, changed, atoms + 1).verify().holds, (path, new)


def test_another_subject_is_refused(case, request):
    """The same witness proves nothing about heads whose sum is constant, nor about a changed hash."""
    cert, _ = case
    heads, _ = CASES[request.node.callspec.params["case"]]
    other = [ExactHead(h.exponents, h.weights, [1] * h.num_atoms).data() for h in heads]
    subject = {"heads": encode_heads(other)}
    assert not certify.Certificate(cert.kind, cert.claim, cert.witness, subject).verify()
    assert not cert.verify(subject)


@pytest.mark.parametrize("text", ["", "[]", "{}", "[[]]", "null", "[1]", "[" * 100_000, '[{"heads":[0]}]'])
def test_malformed_witness_does_not_hold(text):
    good = fuse(exact_sigmoid_sum(1)).certificate.lower
    assert (
        not certify.Certificate(good.kind, good.claim, {"parts": np.array(text)}, good.subject).verify().holds
    )
    heads = {"heads": np.array(text)}
    assert not certify.Certificate(good.kind, good.claim, good.witness, heads).verify().holds


def test_an_unreduced_fraction_is_refused():
    """sigma(q) + sigma(q) over (1 + x)^2 would have the ray bound 3; the truth is 2."""
    good = fuse(steps(1, 1)).certificate.lower
    data = json.loads(str(good.witness["parts"][()]))
    (part,) = data
    (block,) = part["blocks"]
    assert block["heads"] == [0, 1]
    # 2x/(1+x) times (1+x)/(1+x): a true identity, but not in lowest terms.
    block["numerators"] = [[[[1], 2], [[2], 2]]]
    block["denominator"] = [[[0], 1], [[1], 2], [[2], 1]]
    part["method"], part["data"] = "ray", {"step": 1, "blocks": [0], "points": ["1/2", "2"]}
    verdict = _with(good, data, 2).verify()
    assert not verdict.holds
    assert "reduced" in verdict.statement


def test_two_blocks_with_one_denominator_are_refused():
    """sigma(q) + sigma(q) as two blocks 1 + x: their product would count double."""
    good = fuse(steps(1, 1)).certificate.lower
    data = json.loads(str(good.witness["parts"][()]))
    one = {"numerators": [[[[1], 1]]], "denominator": [[[0], 1], [[1], 1]]}
    data[0]["blocks"] = [{"heads": [0], **one}, {"heads": [1], **one}]
    for method, witness in (
        ("ray", {"step": 1, "blocks": [0, 1], "points": ["1/2", "2"]}),
        ("radix", {"pairs": [[1, 2]]}),
        ("vertices", {"directions": [[1], [-1]]}),
    ):
        data[0]["method"], data[0]["data"] = method, witness
        assert not _with(good, data, 2).verify().holds


def test_a_block_may_be_used_once():
    good = fuse(shifts(2)).certificate.lower
    data = json.loads(str(good.witness["parts"][()]))
    for chosen in ([0, 0], [0, -1], [0, 1, -2], [False, 0], [0, 1, 1]):
        data[0]["data"]["blocks"] = chosen
        assert not _with(good, data, 2).verify().holds


def test_dependent_parts_are_refused():
    """Two heads on one line as two parts would multiply to 4; the truth for sigma(q) + sigma(q) is 2."""
    good = fuse(exact_sigmoid_sum(2)).certificate.lower
    subject = {"heads": encode_heads([h.data() for h in steps(1, 1)])}
    parts = json.loads(str(good.witness["parts"][()]))
    for part in parts:
        part["matrix"] = [[1]]
    verdict = certify.Certificate(
        good.kind, {"atoms": 4}, {"parts": np.array(json.dumps(parts))}, subject
    ).verify()
    assert not verdict.holds
    assert "independent" in verdict.statement


def test_only_one_part_may_be_searched():
    parts = []
    for heads in (steps(1, 3), steps(1, 3)):
        parts += json.loads(str(fuse(heads).certificate.lower.witness["parts"][()]))
    parts[1]["heads"] = [2, 3]
    parts[0]["matrix"], parts[1]["matrix"] = [[1, 0]], [[0, 1]]
    heads = [ExactHead([[0, 0], [a, 0]], [1, 1], [0, 1]) for a in (1, 3)]
    heads += [ExactHead([[0, 0], [0, a]], [1, 1], [0, 1]) for a in (1, 3)]
    subject = {"heads": encode_heads([h.data() for h in heads])}
    witness = {"parts": np.array(json.dumps(parts))}
    verdict = certify.Certificate("fusion-lower", {"atoms": 16}, witness, subject).verify()
    assert not verdict.holds
    assert "Only one part" in verdict.statement


def test_valuations_whose_residues_cancel_do_not_count():
    """sigma(q) - 3 sigma(3 q) has no pole at -1: residues 1 and -3/3."""
    heads = [ExactHead([[0], [a]], [1, 1], [0, c]) for a, c in ((1, 1), (3, -3), (2, 1))]
    good = fuse(steps(10**20 + 1, 10**20 + 2)).certificate.lower
    data = json.loads(str(good.witness["parts"][()]))
    data[0]["heads"] = [0, 1, 2]
    data[0]["divisor"] = 1
    subject = {"heads": encode_heads([h.data() for h in heads])}
    witness = {"parts": np.array(json.dumps(data))}
    assert certify.Certificate("fusion-lower", {"atoms": 2}, witness, subject).verify().holds
    assert not certify.Certificate("fusion-lower", {"atoms": 3}, witness, subject).verify().holds


def test_valuations_need_plain_sigmoids():
    """Unequal weights move the poles off the unit circle: the bound must be trivial."""
    good = fuse(steps(10**20 + 1, 10**20 + 2)).certificate.lower
    heads = [ExactHead([[0], [a]], [1, 2], [0, 1]) for a in (1, 2)]
    subject = {"heads": encode_heads([h.data() for h in heads])}
    data = json.loads(str(good.witness["parts"][()]))
    data[0]["divisor"] = 1
    witness = {"parts": np.array(json.dumps(data))}
    assert certify.Certificate("fusion-lower", {"atoms": 1}, witness, subject).verify().holds
    assert not certify.Certificate("fusion-lower", {"atoms": 2}, witness, subject).verify().holds


def test_refutations_are_needed():
    good = fuse(steps(1, 2, 3)).certificate.lower
    data = json.loads(str(good.witness["parts"][()]))
    assert data[0]["data"]["refutations"]
    data[0]["data"]["refutations"].pop()
    assert not _with(good, data, 7).verify().holds


def test_verification_needs_no_jax_and_no_solver(tmp_path):
    fuse(steps(1, 2, 3)).certificate.save(tmp_path)
    code = (
        "import sys; from attnlab import certify\n"
        f"assert certify.load({str(tmp_path / 'fusion-lower.npz')!r}).verify().holds\n"
        f"assert certify.load({str(tmp_path / 'fusion-upper.npz')!r}).verify().holds\n"
        "assert not {'jax', 'scipy', 'highspy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


small = st.dictionaries(
    st.tuples(st.integers(0, 3), st.integers(0, 3)), st.integers(-3, 3).filter(bool), min_size=1, max_size=4
)


@given(small, small, small, st.tuples(st.integers(-3, 3), st.integers(-3, 3)))
def test_a_shared_factor_is_never_called_coprime(a, b, factor, u):
    if len(factor) < 2:
        return
    assert not coprime(_times(a, factor), _times(b, factor), (u, (3, 5)))


def _times(a, b):
    product = {}
    for e, c in a.items():
        for f, k in b.items():
            key = (e[0] + f[0], e[1] + f[1])
            product[key] = product.get(key, 0) + c * k
    return {e: c for e, c in product.items() if c}


def _with(cert, parts, atoms):
    return certify.Certificate(
        cert.kind, {"atoms": atoms}, {"parts": np.array(json.dumps(parts))}, cert.subject
    )


def _leaves(data, path=()):
    yield path
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _leaves(value, (*path, index))


def _get(data, path):
    for step in path:
        data = data[step]
    return data


def _set(data, path, value):
    if path:
        *front, last = path
        _get(data, front)[last] = value
