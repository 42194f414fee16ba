"""Attention files give what a capture gives."""

from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from attnlab.learned import CapturedHead, load_file

HELD = Path(__file__).parents[1] / "data" / "minilm_heads.npz"


def save(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_listed_heads():
    heads = list(load_file(HELD))
    assert [(h.layer, h.head) for h in heads[:4]] == [(0, 0), (0, 5), (0, 11), (1, 0)]
    assert heads[0].model == "minilm_heads"
    assert heads[0].scale == pytest.approx(32**-0.5)
    assert heads[0].q is not None
    assert heads[0].q.shape == (64, 32)
    np.testing.assert_allclose(heads[3].attention().sum(1), 1)
    assert [(h.layer, h.head) for h in load_file(HELD, layers=[2], heads=[5, 11])] == [(2, 5), (2, 11)]


def test_stacks_of_every_depth_and_type(tmp_path, rng):
    logits = rng.normal(size=(2, 3, 5, 4)).astype(np.float32)
    four = list(load_file(save(tmp_path / "four.npz", logits=logits)))
    assert [(h.layer, h.head) for h in four] == [(a, b) for a in range(2) for b in range(3)]
    assert np.array_equal(four[4].logits, logits[1, 1])
    assert four[4].q is None
    three = list(load_file(save(tmp_path / "three.npz", logits=logits[0])))
    assert [h.digest for h in three] == [h.digest for h in four[:3]]
    np.save(tmp_path / "one.npy", four[0].attention())
    one = list(load_file(tmp_path / "one.npy"))
    np.testing.assert_allclose(one[0].attention(), four[0].attention(), rtol=1e-6)
    safetensors.numpy.save_file({"logits": logits}, tmp_path / "four.safetensors")
    assert [h.digest for h in load_file(tmp_path / "four.safetensors")] == [h.digest for h in four]


def test_queries_and_keys_make_logits(tmp_path, rng):
    q, k = rng.normal(size=(2, 5, 3)).astype(np.float32), rng.normal(size=(2, 4, 3)).astype(np.float32)
    mask = np.ones((5, 4), bool)
    mask[0, 1:] = False
    head = list(load_file(save(tmp_path / "qk.npz", q=q, k=k, beta=np.array(2.0), mask=mask)))[1]
    assert head.scale == 2
    np.testing.assert_allclose(head.logits[1:], 2 * q[1, 1:] @ k[1].T, rtol=1e-5, atol=1e-6)
    assert head.attention()[0].tolist() == [1, 0, 0, 0]
    # q and k that do not make the logits are left out rather than believed.
    logits = rng.normal(size=(2, 5, 4))
    assert next(load_file(save(tmp_path / "other.npz", logits=logits, q=q, k=k))).q is None


def test_temperature(rng):
    head = CapturedHead("toy", "", 0, 0, 0, rng.normal(size=(4, 5)).astype(np.float32))
    half = np.exp(0.5 * head.logits.astype(float))
    np.testing.assert_allclose(head.attention(0.5), half / half.sum(1, keepdims=True))
    with pytest.raises(ValueError, match="beta must be a positive number"):
        head.attention(0.0)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"weights": np.ones((2, 2))}, "neither logits, q and k, nor attention; it has weights"),
        ({"q": np.ones((2, 2))}, "only one of q and k"),
        ({"q": np.ones((2, 2)), "k": np.ones((2, 3))}, "do not fit together"),
        ({"logits": np.ones((1, 1, 1, 2, 2))}, "logits have shape"),
        ({"logits": np.ones(3)}, "logits have shape"),
        ({"logits": np.array([["a"]])}, "not real numbers"),
        ({"logits": np.full((2, 2), np.nan)}, "NaN or"),
        ({"logits": np.full((2, 2), -np.inf)}, "masked throughout"),
        ({"attention": -np.ones((2, 2))}, "negative or NaN"),
        ({"logits": np.ones((2, 3, 3)), "heads": np.zeros((3, 2), int)}, r"integers of shape \(2, 2\)"),
        ({"logits": np.ones((2, 2)), "mask": np.ones((2, 2))}, "mask must be boolean"),
        ({"logits": np.ones((2, 2)), "q": np.ones((3, 2)), "k": np.ones((3, 2))}, "drop q and k"),
        ({"logits": np.ones((2, 2)), "tokens": np.array(["a"])}, "tokens has 1 entries for 2 keys"),
    ],
)
def test_bad_files(tmp_path, arrays, said):
    with pytest.raises(ValueError, match=said):
        load_file(save(tmp_path / "bad.npz", **arrays))


def test_bad_choices(tmp_path):
    with pytest.raises(ValueError, match=r"layers: .* has no index 6; it has 0\.\.5"):
        load_file(HELD, layers=[6])
    with pytest.raises(ValueError, match=r"has no index 1; it has 0, 5, 11"):
        load_file(HELD, heads=[1])
    with pytest.raises(FileNotFoundError):
        load_file(tmp_path / "absent.npz")
    (tmp_path / "cut.npz").write_bytes(Path(HELD).read_bytes()[:1000])
    with pytest.raises(ValueError, match="cannot be read"):
        load_file(tmp_path / "cut.npz")
