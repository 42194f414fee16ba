"""Validation, and the reduction that removes duplicates without changing r_eps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.certify import Certificate
from attnlab.rank import Logits, bracket
from attnlab.rank._target import target


def with_duplicates(seed):
    rng = np.random.default_rng(seed)
    core = rng.dirichlet(np.ones(4), 5)
    rows = rng.integers(0, 5, 9)
    split = rng.dirichlet(np.ones(3), 4)  # every column becomes three proportional ones
    return (core[rows][:, :, None] * split).reshape(9, 12), core


@given(st.integers(0, 10**6))
def test_duplicates_merge_and_certificates_lift_back(seed):
    a, _ = with_duplicates(seed)
    t = target(a)
    assert t.matrix.shape[0] <= 5
    assert t.matrix.shape[1] == 4
    np.testing.assert_allclose(t.matrix.sum(1), 1, atol=1e-12)
    u, s, vt = np.linalg.svd(t.matrix)
    k = 2
    upper = Certificate(
        "rank-upper", {"rank": k, "error": 2.0}, t.lift_upper(u[:, :k] * s[:k], vt[:k]), t.subject
    ).verify()
    small = np.abs(t.matrix - (u[:, :k] * s[:k]) @ vt[:k]).sum(1).max()
    assert upper.bound == pytest.approx(small, rel=1e-9)
    right = vt[: k + 1].T / s[: k + 1]
    witness = t.lift_lower(right, right @ u[:, : k + 1].T)
    lower = Certificate("rank-lower", {"rank": k, "error": 0.0}, witness, t.subject).verify()
    assert lower.bound == pytest.approx(1 / np.abs(right @ u[:, : k + 1].T).sum(1).max(), rel=1e-6)


def test_absent_columns_and_repeated_rows_do_not_matter():
    a = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.2, 0.8, 0.0]])
    result = bracket(a, 0.1, effort="fast")
    assert (result.lower, result.upper) == (2, 2)


@pytest.mark.parametrize(
    ("matrix", "reason"),
    [
        (np.array([[0.5, np.nan]]), r"A\[0, 1\] is not finite"),
        (np.array([[1.5, -0.5]]), r"A\[0, 1\] is negative"),
        (np.array([[1.0, 0.0], [0.5, 0.4]]), "row 1 of A sums to 0.9, off 1 by 0.1.*--normalize"),
        (np.ones(3) / 3, "non-empty real"),
        (np.zeros((0, 2)), "non-empty real"),
        ([[1.0], [0.5, 0.5]], "rectangular"),
        (np.array([["a"]]), "non-empty real"),
        (Logits(np.array([[np.nan, 0.0]])), "NaN or [+]inf"),
        (Logits(np.array([[0.0, 0.0], [-np.inf, -np.inf]])), "row 1 of the logits is masked"),
    ],
)
def test_bad_matrices_are_one_clear_sentence(matrix, reason):
    with pytest.raises(ValueError, match=reason):
        bracket(matrix, 0.1)


@pytest.mark.parametrize("eps", [0, 2, -1, np.nan, "x", None])
def test_eps_out_of_range(eps):
    with pytest.raises(ValueError, match="eps must"):
        bracket(np.eye(2), eps)
