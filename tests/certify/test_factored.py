"""Certificates about attention given by its factors: valid against the formed matrix, and tamper-proof."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.certify import Certificate, InvalidWitness, _factored, _rank_factored, load

M, N, D = 23, 31, 3


def arrays(seed, beta=2.0, mask=None):
    rng = np.random.default_rng(seed)
    subject = {
        "q": rng.normal(size=(M, D)),
        "k": rng.normal(size=(N, D)),
        "beta": np.array(beta),
        "log_weights": rng.normal(size=N),
    }
    return subject if mask is None else subject | {"mask": mask}


def seen(mask):
    if mask is None:
        return np.ones((M, N), bool)
    if mask.dtype.kind == "U":
        return np.arange(N) <= np.arange(M)[:, None] + N - M
    return np.unpackbits(mask, axis=1, count=N).astype(bool)


def dense(subject):
    """The matrix in extended precision, rounded once."""
    q, k, b = (subject[x].astype(np.longdouble) for x in ("q", "k", "log_weights"))
    z = np.where(seen(subject.get("mask")), float(subject["beta"]) * (q @ k.T) + b, -np.inf)
    a = np.exp(z - z.max(1, keepdims=True))
    return a / a.sum(1, keepdims=True)


def masks():
    bits = np.random.default_rng(9).random((M, N)) < 0.6
    bits[:, 0] = True
    return [None, np.array("causal"), np.packbits(bits, axis=1)]


def upper(subject, rank=6):
    u, s, vt = np.linalg.svd(dense(subject).astype(np.float64))
    witness = {"U": u[:, :rank] * s[:rank], "W": vt[:rank]}
    exact = float(np.abs(dense(subject) - witness["U"] @ witness["W"]).sum(1).max())
    return Certificate("rank-upper", {"rank": rank, "error": exact * (1 + 1e-10)}, witness, subject), exact


def psd(subject, rank=4, size=7):
    a = dense(subject).astype(np.float64)
    s, vt = np.linalg.svd(a)[1:]
    right = vt[:size].T / s[:size] * np.sqrt(M)
    error = np.sqrt((size - rank) / (right**2).sum(1).max()) * (1 - 1e-9)
    return Certificate(
        "rank-lower-psd", {"rank": rank, "error": error}, {"R": right, "P": np.full((1, M), 1 / M)}, subject
    )


def aggregate(subject, rank=4):
    rows, labels = np.arange(0, M, 2), np.arange(N) % 9
    u, s, vt = np.linalg.svd(dense(subject).astype(np.float64)[rows] @ np.eye(9)[labels])
    right, left = vt[: rank + 1].T, u[:, : rank + 1].T
    bound = 1 / np.abs(right / s[: rank + 1] @ left).sum(1).max()
    witness = {"R": right, "L": left, "rows": rows, "labels": labels}
    return Certificate("rank-lower", {"rank": rank, "error": bound * (1 - 1e-9)}, witness, subject)


@pytest.mark.parametrize("mask", masks(), ids=["all", "causal", "bits"])
@pytest.mark.parametrize("make", [lambda s: upper(s)[0], psd, aggregate], ids=["upper", "psd", "aggregate"])
def test_holds_in_both_arithmetics_and_agrees_with_the_formed_matrix(make, mask):
    certificate = make(arrays(0, mask=mask))
    plain, audit = certificate.verify(), certificate.verify(arb=True)
    assert plain, plain.statement
    assert audit, audit.statement
    assert plain.bound == pytest.approx(audit.bound, rel=1e-9)
    if "labels" not in certificate.witness:
        formed = {"attention": dense(certificate.subject).astype(np.float64)}
        assert Certificate(certificate.kind, certificate.claim, certificate.witness, formed).verify(
            arb=True
        ).bound == pytest.approx(plain.bound, rel=1e-9)


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.floats(-20, 20))
def test_the_upper_bound_is_never_below_the_truth(seed, beta):
    certificate, exact = upper(arrays(seed, beta))
    bound = certificate.verify().bound
    assert exact <= bound <= exact + 1e-11


def test_rows_are_within_their_radius():
    subject = arrays(3, beta=300.0, mask=np.array("causal"))
    rows = _factored.read_factored(subject).rows(slice(None))
    off = np.abs(rows.mid - dense(subject))
    assert (off <= rows.relative[:, None] * rows.mid + 1e-290).all()
    assert (off.sum(1) <= rows.distance()).all()
    assert rows.distance().max() < 1e-10


@pytest.mark.parametrize("make", [lambda s: upper(s)[0], psd, aggregate], ids=["upper", "psd", "aggregate"])
def test_block_size_does_not_change_the_verdict(make, monkeypatch):
    certificate = make(arrays(1))
    whole = certificate.verify()
    for block, tile in ((1, 1), (100, 50), (2 * N, 3)):
        monkeypatch.setattr(_factored, "BLOCK", block)
        monkeypatch.setattr(_rank_factored, "TILE", tile)
        verdict = certificate.verify()
        assert verdict.holds == whole.holds
        assert verdict.bound == pytest.approx(whole.bound, rel=1e-12)


def test_files_round_trip_detached_or_not(tmp_path):
    certificate = psd(arrays(0, mask=np.array("causal")))
    certificate.save(tmp_path / "c.npz")
    assert load(tmp_path / "c.npz").verify()
    certificate.detach().save(tmp_path / "d.npz")
    assert load(tmp_path / "d.npz").verify(arrays(0, mask=np.array("causal")))
    assert not load(tmp_path / "d.npz").verify(arrays(0))


@pytest.mark.parametrize("make", [lambda s: upper(s)[0], psd, aggregate], ids=["upper", "psd", "aggregate"])
def test_a_stronger_claim_or_another_subject_does_not_hold(make):
    certificate = make(arrays(0))
    better = 0.999 if certificate.kind == "rank-upper" else 1.001
    claim = {**certificate.claim, "error": certificate.claim["error"] * better}
    assert not Certificate(certificate.kind, claim, certificate.witness, certificate.subject).verify()
    for change in ({"beta": np.array(2.5)}, {"mask": np.array("causal")}, {"log_weights": np.zeros(N)}):
        other = {**certificate.subject, **change}
        verdict = Certificate(certificate.kind, certificate.claim, certificate.witness, other).verify()
        assert not verdict or verdict.bound != certificate.verify().bound


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"q": np.zeros((M, D + 1))}, "one d"),
        ({"q": np.full((M, D), np.nan)}, "NaN"),
        ({"k": np.array(["a"])}, "real"),
        ({"beta": np.array([1.0, 2.0])}, "beta"),
        ({"beta": np.array(1e300)}, "too large"),
        ({"log_weights": np.full(N, np.inf)}, "log_weights"),
        ({"log_weights": np.full(N, -np.inf)}, "masked"),
        ({"log_weights": np.zeros(N - 1)}, "log_weights"),
        ({"mask": np.array("future")}, "mask"),
        ({"mask": np.zeros((M, 4), np.uint8)}, "masked"),
        ({"mask": np.zeros((M, 3), np.uint8)}, "mask"),
        ({"extra": np.zeros(1)}, "subject"),
    ],
)
def test_bad_subjects(change, word):
    certificate, _ = upper(arrays(0))
    verdict = Certificate(
        "rank-upper", certificate.claim, certificate.witness, {**certificate.subject, **change}
    ).verify()
    assert not verdict
    assert word in verdict.statement


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"rows": np.array([0, M])}, "rows"),
        ({"rows": np.array([0.5])}, "rows"),
        ({"labels": np.arange(N) % 9 * 2}, "labels"),
        ({"labels": np.zeros(3, int)}, "labels"),
        ({"labels": np.full(N, -1)}, "labels"),
        ({"R": np.zeros((9, 5))}, "singular"),
        ({"L": np.full((5, 12), np.nan)}, "NaN"),
    ],
)
def test_bad_witnesses(change, word):
    certificate = aggregate(arrays(0))
    verdict = Certificate(
        "rank-lower", certificate.claim, {**certificate.witness, **change}, certificate.subject
    ).verify()
    assert not verdict
    assert word in verdict.statement


def test_matrices_too_large_to_form_are_refused():
    wide = {
        "q": np.zeros((5000, 1)),
        "k": np.zeros((5000, 1)),
        "beta": np.array(1.0),
        "log_weights": np.zeros(5000),
    }
    with pytest.raises(InvalidWitness, match="too large"):
        _factored.read_factored(wide).whole(False)
    assert Certificate("rank-lower", {"rank": 0, "error": 1.0}, {}, wide).verify()
    ones = {"U": np.ones((5000, 1)), "W": np.full((1, 5000), 1 / 5000)}
    assert Certificate("rank-upper", {"rank": 1, "error": 1e-9}, ones, wide).verify()
