"""Rank certificates: valid against exact truth, tight where it is known, and hard to fool."""

import contextlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab import certify
from attnlab.certify import Certificate, CertificateError


def softmax(logits):
    raw = np.exp(logits - logits.max(1, keepdims=True))
    return raw / raw.sum(1, keepdims=True)


def random_attention(seed, m=7, n=8):
    return softmax(2 * np.random.default_rng(seed).normal(size=(m, n)))


def lower(a, k, kind="rank-lower", error=0.0, subject=None):
    """An honest certificate from the singular vectors of a."""
    u, s, vt = np.linalg.svd(a)
    right = vt[: k + 1].T / s[: k + 1]
    left = u[:, : k + 1].T
    witness = {"R": right, "C": right @ left} if kind == "rank-lower" else {"R": right, "L": left}
    return Certificate("rank-lower", {"rank": k, "error": error}, witness, subject or {"attention": a})


def upper(a, k, error=2.0):
    u, s, vt = np.linalg.svd(a)
    return Certificate(
        "rank-upper", {"rank": k, "error": error}, {"U": u[:, :k] * s[:k], "W": vt[:k]}, {"attention": a}
    )


def psd(a, k, error=0.0):
    m, n = a.shape
    return Certificate(
        "rank-lower-psd",
        {"rank": k, "error": error},
        {"R": np.eye(n), "P": np.full((1, m), 1 / m)},
        {"attention": a},
    )


def one_dimensional(error=0.0):
    """A 1-d interaction with k = 1: h = +1, -1 halves of a symmetric kernel."""
    x = np.linspace(-1, 1, 6)
    a = softmax(4 * np.outer(x, x))
    witness = {
        "q": x * 4.0,
        "k": x,
        "b": np.zeros(6),
        "h": np.array([1.0, 1, 1, -1, -1, -1]),
        "rows": np.array([0, 5]),
    }
    return Certificate("rank-lower-1d", {"rank": 1, "error": error}, witness, {"attention": a})


MAKERS = {
    "lower": lambda: lower(random_attention(0), 3),
    "lower by L": lambda: lower(random_attention(0), 3, kind="L"),
    "psd": lambda: psd(random_attention(0), 3),
    "1d": one_dimensional,
    "upper": lambda: upper(random_attention(0), 3),
}


def proved(certificate, **options):
    return certificate.verify(**options).bound


def with_claim(certificate, error):
    return Certificate(
        certificate.kind, {**certificate.claim, "error": error}, certificate.witness, certificate.subject
    )


@pytest.mark.parametrize("name", MAKERS)
def test_the_claim_holds_exactly_up_to_the_recomputed_bound(name):
    certificate = MAKERS[name]()
    bound = proved(certificate)
    assert 0 < bound < 2
    inside, outside = (1 + 1e-9, 1 - 1e-6) if name == "upper" else (1 - 1e-9, 1 + 1e-6)
    if name == "psd":  # it may prove a little more the larger the claim it starts from
        outside = 1.5
    assert with_claim(certificate, bound * inside).verify()
    verdict = with_claim(certificate, bound * outside).verify()
    assert not verdict
    assert "not proved" in verdict.statement


@pytest.mark.parametrize("name", MAKERS)
def test_arb_and_float64_agree_and_float64_is_never_more_generous(name):
    certificate = MAKERS[name]()
    fast, audit = proved(certificate), proved(certificate, arb=True)
    assert fast == pytest.approx(audit, rel=1e-9)
    slack = 1e-13
    assert fast >= audit * (1 - slack) if name == "upper" else fast <= audit * (1 + slack)


@pytest.mark.parametrize("name", MAKERS)
def test_every_witness_array_matters(name):
    """Spoiling any entry by 10% (or an index by one) must never prove more than the truth allows."""
    certificate = MAKERS[name]()
    a = np.asarray(certificate.subject["attention"])
    k = certificate.claim["rank"]
    truth_above = proved(upper(a, k))  # a valid upper bound on the exact value
    for entry, array in certificate.witness.items():
        for index in range(min(array.size, 5)):
            spoiled = np.array(array)
            spoiled.flat[index] += 1 if entry == "rows" else 0.1 + 0.1 * abs(spoiled.flat[index])
            witness = {**certificate.witness, entry: spoiled}
            bound = proved(Certificate(certificate.kind, certificate.claim, witness, certificate.subject))
            if name == "upper":
                assert bound >= np.abs(a - witness["U"] @ witness["W"]).sum(1).max()
            else:
                assert np.isnan(bound) or bound <= truth_above * (1 + 1e-12)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("fault", ["missing", "nan", "shape", "text"])
def test_broken_witnesses_fail_with_a_reason(name, fault):
    certificate = MAKERS[name]()
    for entry, array in certificate.witness.items():
        witness = dict(certificate.witness)
        if fault == "missing":
            del witness[entry]
        elif fault == "nan":
            witness[entry] = np.full(array.shape, np.nan)
        elif fault == "shape":
            witness[entry] = np.ones((*array.shape, 1))
        else:
            witness[entry] = np.array("no")
        verdict = Certificate(certificate.kind, certificate.claim, witness, certificate.subject).verify()
        assert not verdict
        assert len(verdict.statement) > 10


@pytest.mark.parametrize("rank", [-1, 1.5, True, "3", None])
@pytest.mark.parametrize("name", MAKERS)
def test_nonsense_ranks_fail(name, rank):
    certificate = MAKERS[name]()
    claim = {"rank": rank, "error": 0.1}
    assert not Certificate(certificate.kind, claim, certificate.witness, certificate.subject).verify()


@pytest.mark.parametrize("error", [-0.1, np.nan, np.inf, "0.1", None, True])
@pytest.mark.parametrize("name", MAKERS)
def test_nonsense_errors_fail(name, error):
    certificate = MAKERS[name]()
    claim = {"rank": 3, "error": error}
    assert not Certificate(certificate.kind, claim, certificate.witness, certificate.subject).verify()


@pytest.mark.parametrize(
    "subject",
    [
        {"attention": np.full((2, 2), 0.6)},
        {"attention": np.array([[1.5, -0.5], [0.5, 0.5]])},
        {"attention": np.array([[np.nan, 1.0], [0.5, 0.5]])},
        {"attention": np.zeros((0, 3))},
        {"attention": np.ones(4) / 4},
        {"logits": np.array([[np.inf, 0.0]])},
        {"logits": np.array([[-np.inf, -np.inf]])},
        {"weights": np.eye(2)},
    ],
)
def test_subjects_that_are_not_attention_prove_nothing(subject):
    shape = next(iter(subject.values())).shape
    m, n = shape if len(shape) == 2 else (1, 4)
    witness = {"U": np.ones((m, 1)), "W": np.ones((1, n))}
    assert not Certificate("rank-upper", {"rank": 1, "error": 1.9}, witness, subject).verify()


def test_identity_needs_every_rank():
    """I_N: no matrix of rank N - 1 is within eps < 1 (known answer)."""
    a = np.eye(64)
    certificate = Certificate("rank-lower", {"rank": 63, "error": 0.99}, {"R": a, "L": a}, {"attention": a})
    verdict = certificate.verify()
    assert verdict
    assert verdict.bound == pytest.approx(1, abs=1e-12)


def test_trivial_ranks():
    a = random_attention(1)
    for kind in ("rank-upper", "rank-lower"):
        assert Certificate(kind, {"rank": 0, "error": 1.0}, {}, {"attention": a}).verify()
    assert Certificate("rank-upper", {"rank": 7, "error": 0.0}, {}, {"attention": a}).verify()
    assert not Certificate("rank-lower", {"rank": 7, "error": 0.1}, {}, {"attention": a}).verify()


@given(st.integers(0, 10**6), st.integers(1, 5))
def test_lower_never_exceeds_upper(seed, k):
    a = random_attention(seed)
    best = proved(upper(a, k))
    for certificate in (lower(a, k), lower(a, k, kind="L"), psd(a, k)):
        bound = proved(certificate)
        assert np.isnan(bound) or bound <= best


@given(st.integers(0, 10**6))
def test_exact_rank_is_seen(seed):
    """A product of positive factors with rank 3: no certificate may claim a_4 > rounding."""
    rng = np.random.default_rng(seed)
    a = rng.dirichlet(np.ones(3), 8) @ rng.dirichlet(np.ones(8), 3)
    for certificate in (lower(a, 3), lower(a, 3, kind="L"), psd(a, 3)):
        bound = proved(certificate)
        assert np.isnan(bound) or bound < 1e-7


def test_a_dependent_basis_is_refused():
    a = random_attention(2)
    right = np.ones((8, 4))
    verdict = Certificate(
        "rank-lower", {"rank": 3, "error": 0.1}, {"R": right, "C": np.zeros((8, 7))}, {"attention": a}
    ).verify()
    assert not verdict


def test_plain_tail_is_the_two_summing_bound_at_uniform_weights():
    a = random_attention(3)
    s = np.linalg.svd(a, compute_uv=False)
    assert proved(psd(a, 3)) == pytest.approx(np.sqrt((s[3:] ** 2).sum() / len(a)), rel=1e-9)


def test_psd_weights_beyond_the_simplex_gain_nothing():
    a = random_attention(3)
    plain = psd(a, 3)
    scaled = Certificate(
        "rank-lower-psd", plain.claim, {**plain.witness, "P": 5 * plain.witness["P"]}, plain.subject
    )
    assert proved(scaled) == pytest.approx(proved(plain), rel=1e-9)
    negative = Certificate(
        "rank-lower-psd", plain.claim, {**plain.witness, "P": -plain.witness["P"]}, plain.subject
    )
    assert not negative.verify()


def test_one_dimensional_knots_are_counted_on_the_step_function_not_on_signs():
    """(1, 0.3, 1) changes sign nowhere but has two knots."""
    certificate = one_dimensional()
    h = np.array([1.0, 1, 0.3, 1, -1, -1])
    spoiled = Certificate(
        "rank-lower-1d", certificate.claim, {**certificate.witness, "h": h}, certificate.subject
    )
    assert "3 knots" in spoiled.verify().statement


def test_one_dimensional_matrix_must_match_the_kernel():
    certificate = one_dimensional()
    other = {"attention": softmax(np.random.default_rng(0).normal(size=(6, 6)))}
    assert proved(Certificate("rank-lower-1d", certificate.claim, certificate.witness, other)) == 0


def test_logits_subject_is_their_true_softmax():
    logits = 3 * np.random.default_rng(4).normal(size=(7, 8))
    logits[0, 3:] = -np.inf
    a = softmax(logits)
    for arb in (False, True):
        mine = proved(lower(a, 3, subject={"logits": logits}), arb=arb)
        assert mine == pytest.approx(proved(lower(a, 3)), rel=1e-9)


def test_small_row_sum_errors_are_normalised_away():
    """The matrix meant has exact row sums, so a stored one that is off by 1e-7 costs that much."""
    a = random_attention(5)
    off = a * (1 + 1e-7)
    assert proved(lower(off, 3)) == pytest.approx(proved(lower(a, 3)), rel=1e-5)
    assert not lower(a * (1 + 1e-5), 3).verify()


def test_file_round_trip_detached_subject_and_tampering(tmp_path):
    certificate = lower(random_attention(6), 3, error=0.01)
    path = tmp_path / "c.npz"
    certificate.save(path)
    assert certify.load(path).verify()
    assert [p.name for p in tmp_path.iterdir()] == ["c.npz"]
    certificate.detach().save(path)
    loaded = certify.load(path)
    assert not loaded.verify()
    assert loaded.verify(certificate.subject)
    assert not loaded.verify({"attention": random_attention(7)})
    with np.load(path) as data:
        entries = dict(data)
    for name in entries:
        if name == "digest":
            continue
        changed = dict(entries)
        value = changed[name]
        changed[name] = value + 1 if value.dtype.kind in "fi" else np.array(str(value)[::-1])
        np.savez(path, **changed)
        with contextlib.suppress(CertificateError):
            assert not certify.load(path).verify(certificate.subject), name


def test_unreadable_files_are_one_sentence(tmp_path):
    path = tmp_path / "c.npz"
    lower(random_attention(6), 3).save(path)
    whole = path.read_bytes()
    for content in (b"", b"not a zip", whole[: len(whole) // 2], whole[:-20]):
        path.write_bytes(content)
        with pytest.raises(CertificateError, match="certificate"):
            certify.load(path)
    np.savez(path, kind=np.array([{"pickled": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(CertificateError):
        certify.load(path)
    np.save(tmp_path / "c.npy", np.eye(2))
    with pytest.raises(CertificateError, match="bare array"):
        certify.load(tmp_path / "c.npy")
    with pytest.raises(FileNotFoundError):
        certify.load(tmp_path / "none.npz")
    with pytest.raises(CertificateError, match="Unknown certificate kind"):
        Certificate("rank-guess", {}, {}, {})


def test_the_checker_loads_neither_jax_nor_the_rest_of_attnlab():
    code = (
        "import sys, attnlab.certify; "
        "bad = [m for m in sys.modules if m.split('.')[0] in ('jax', 'jaxlib', 'equinox', 'scipy', 'highspy')"
        " or (m.startswith('attnlab.') and not m.startswith('attnlab.certify'))]; "
        "sys.exit(repr(bad) if bad else 0)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
