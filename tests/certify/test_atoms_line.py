"""Lower bounds on atoms from lines: valid against heads that exist, and hard to fool."""

import numpy as np
import pytest

from attnlab.certify import Certificate

LEVEL, OUT = 1.3866, 2.6666


def certificate(atoms: int = 4, eps: float = 0.19, **changes) -> Certificate:
    """W_2 on |q| <= R = 4: a bump on one antidiagonal and a dip on the opposite one. The best bump has its
    top at (R/3, R/3) and swing (3 sigma(R/3) - 1 - sigma(R)) / 2."""
    offset = np.array([4 / 3, 4 / 3])
    witness = {
        "origins": np.stack([offset, -offset]) - np.array([OUT, -OUT]),
        "direction": np.array([2 * OUT, -2 * OUT]),
        "times": np.array([[0.0, 0.5, 1.0], [0.0, 0.5, 1.0]]),
        "levels": np.array([LEVEL, 2 - LEVEL]),
        "coordinate": np.array(0),
    }
    subject = {
        "target_keys": np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]),
        "target_values": np.array([[0.0], [1.0], [0.0], [1.0]]),
        "target_log_weights": np.zeros(4),
        "target_sizes": np.array([2, 2]),
        "radius": np.array([4.0, 4.0]),
    }
    for name, change in changes.items():
        (witness if name in witness else subject)[name] = change
    return Certificate("atoms-lower-line", {"atoms": atoms, "eps": eps}, witness, subject)


def test_two_lines_prove_all_four_atoms():
    verdict = certificate().verify()
    assert verdict.holds
    assert verdict.bound == 4
    assert 0 < verdict.margin < 0.01
    assert "4 atoms" in verdict.statement


def test_one_line_proves_three():
    for atoms in (3, 4):
        single = certificate(
            atoms,
            origins=np.array([[4 / 3 - OUT, 4 / 3 + OUT]]),
            times=np.array([[0.0, 0.5, 1.0]]),
            levels=np.array([LEVEL]),
        )
        assert bool(single.verify()) == (atoms == 3)


@pytest.mark.parametrize(
    ("atoms", "eps"), [(5, 0.19), (4, 0.2), (0, 0.1), (4.0, 0.1), (True, 0.1), (4, -1.0)]
)
def test_rejects_false_claims(atoms, eps):
    assert not certificate(atoms, eps).verify()


@pytest.mark.parametrize(
    "changes",
    [
        {"radius": np.array([3.0, 3.0])},  # the lines leave the box
        {"radius": np.array([4.0])},
        {"levels": np.array([LEVEL, LEVEL])},
        {"levels": np.array([LEVEL, np.nan])},
        {"times": np.array([[0.0, 0.5, 0.4], [0.0, 0.5, 1.0]])},
        {"times": np.array([[0.0, 0.5, 1.0]])},
        {"times": np.zeros((2, 0))},
        {"origins": np.array([[4 / 3 - OUT, 4 / 3 + OUT]] * 2)},  # both lines show the same signs
        {"direction": np.array([0.0, 0.0])},
        {"coordinate": np.array(1)},
        {"coordinate": np.array(-1)},
        {"target_sizes": np.array([2, 1])},
    ],
)
def test_rejects_bad_witnesses(changes):
    assert not certificate(**changes).verify()


def test_sharp_against_a_head_with_three_atoms():
    """A head with three atoms within 0.1961 of W_2 on the box exists (see tests/fusion/test_fit.py), so
    nothing may prove four atoms there for eps = 0.1961."""
    for level in np.linspace(1.38, 1.4, 21):
        assert not certificate(4, 0.1961, levels=np.array([level, 2 - level])).verify()


def test_infinite_radius():
    assert certificate(radius=np.array([np.inf, np.inf])).verify()
