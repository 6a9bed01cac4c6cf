"""Test the recipes of the guide to weights on models of torch with random weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.run_page import blocks, run
from toolkit.reading.safetensors import read_safetensors

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "weights.md"
TOLERANCE = 1e-5

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="in checkouts only")


@pytest.fixture(scope="module")
def guide(tmp_path_factory):
    """Return the names that the page defines."""
    names = {"__name__": "__main__"}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("guide"))
        for block in blocks(PAGE.read_text("utf-8")):
            if block.language == "python":
                run(block, PAGE, names)
    return names


@pytest.fixture
def torch():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    return torch


def randomize(torch, model):
    """Set random values, also of statistics: a new model has many 0 and 1."""
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                value.copy_(torch.randn_like(value) * 0.2)
                value += (
                    1 if name.endswith(("weight", "var")) and value.ndim == 1 else 0
                )
                if name.endswith("var"):
                    value.abs_()
    return model.eval()


def close(actual, expected):
    expected = expected.detach().numpy()
    error = np.abs(np.asarray(actual) - expected).max() / np.abs(expected).max()
    assert error < TOLERANCE, error


def test_resnet_of_torchvision(torch, guide, tmp_path):
    torchvision = pytest.importorskip("torchvision")
    save = pytest.importorskip("safetensors.torch").save_file
    torch_model = randomize(torch, torchvision.models.resnet18(num_classes=10))
    save(torch_model.state_dict(), tmp_path / "a.safetensors")
    model = guide["resnet18"]((64, 64, 3), 10)
    model.load_weights(
        tmp_path / "a.safetensors",
        mapping=guide["RESNET"],
        ignore=["*.num_batches_tracked"],
    )
    x = torch.randn(2, 3, 64, 64)
    close(model.predict(x.permute(0, 2, 3, 1).numpy(), verbose=0), torch_model(x))
    # The opposite direction.
    model.save_weights(tmp_path / "b.safetensors", mapping=guide["RESNET"])
    counters = {
        k for k in torch_model.state_dict() if k.endswith("num_batches_tracked")
    }
    load = pytest.importorskip("safetensors.torch").load_file
    missing, unexpected = torch_model.load_state_dict(
        load(tmp_path / "b.safetensors"), False
    )
    assert set(missing) <= counters and not unexpected


def transformers_of(torch):
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    return transformers


def test_gpt2(torch, guide, tmp_path):
    library = transformers_of(torch)
    config = library.GPT2Config(
        n_layer=2, n_embd=16, n_head=2, vocab_size=50, n_positions=12,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    torch_model = randomize(torch, library.GPT2LMHeadModel(config))
    torch_model.save_pretrained(tmp_path)
    model = guide["gpt2"](length=12, words=50, width=16, heads=2, blocks=2)
    model.load_weights(tmp_path / "model.safetensors", mapping=guide["GPT2"])
    tokens = torch.randint(0, 50, (3, 12))
    expected = torch_model(tokens).logits
    close(model.predict(tokens.int().numpy(), verbose=0), expected)
    # Training here continues there.
    before = read_safetensors(tmp_path / "model.safetensors")
    model.save_weights(tmp_path / "model.safetensors", mapping=guide["GPT2"])
    after = read_safetensors(tmp_path / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    restored = library.GPT2LMHeadModel.from_pretrained(tmp_path)
    assert torch.equal(restored.eval()(tokens).logits, expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bert_in_several_files(torch, guide, tmp_path, dtype):
    library = transformers_of(torch)
    config = library.BertConfig(
        num_hidden_layers=2, hidden_size=16, num_attention_heads=2,
        intermediate_size=32, vocab_size=50, max_position_embeddings=12,
    )  # fmt: skip
    torch_model = randomize(torch, library.BertModel(config)).to(getattr(torch, dtype))
    torch_model.save_pretrained(tmp_path, max_shard_size="5KB")
    path = tmp_path / "model.safetensors.index.json"
    model = guide["bert"](12, 50, 16, 2, 32, 2)
    model.load_weights(path, mapping=guide["BERT"])
    tokens, kinds = torch.randint(0, 50, (3, 12)), torch.randint(0, 2, (3, 12))
    predictions = model.predict([tokens.int().numpy(), kinds.int().numpy()], verbose=0)
    expected = torch_model.float()(tokens, token_type_ids=kinds)
    close(predictions[0], expected.last_hidden_state)
    close(predictions[1], expected.pooler_output)
    # The opposite direction, in other files.
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_bytes((tmp_path / "config.json").read_bytes())
    model.save_weights(other / path.name, max_shard_size=1e-5, mapping=guide["BERT"])
    restored = library.BertModel.from_pretrained(other, dtype=torch.float32).eval()
    close(restored(tokens, token_type_ids=kinds).pooler_output.detach(), expected[1])
