"""Test generation with a cache against the full network for each token."""

import runpy
from pathlib import Path

import numpy as np
import pytest

import toolkit
from toolkit import ops, random

PATH = Path(__file__).resolve().parents[2] / "examples" / "gpt.py"
pytestmark = pytest.mark.skipif(
    not PATH.is_file(), reason="the examples are in checkouts only"
)
START = 5


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(PATH))


@pytest.fixture
def model(example):
    """Return the example with large weights, so that tokens depend on all before."""
    toolkit.utils.set_random_seed(0)
    model = example["GPT"]()
    model(np.zeros((1, 4), "int32"))
    for weight in model.trainable_variables:
        if weight.ndim == 2:
            weight.assign(weight * 2.0)
    return model


@pytest.fixture
def tokens(example):
    return np.random.default_rng(0).integers(1, 90, (1, example["LENGTH"]), "int32")


def expected(example, model, tokens, temperature, seed):
    """Return the tokens of the full network, one at a time."""
    tokens, count = tokens.copy(), START
    full_network = toolkit.function(lambda tokens: model(tokens))
    while count < tokens.shape[1] and tokens[0, count - 1]:
        logits = ops.convert_to_tensor(full_network(tokens).numpy()[:, count - 1])
        tokens[0, count] = int(example["sample"](logits, temperature, seed)[0, 0])
        count += 1
    return tokens, count


@pytest.mark.parametrize("temperature", [0, 0.7, 1.5])
def test_tokens_equal_the_full_network(example, model, tokens, temperature):
    seeds = [random.SeedGenerator(3) for _ in range(2)]
    expected_tokens, end = expected(example, model, tokens, temperature, seeds[0])
    write = example["make_generator"](model, temperature, seeds[1])
    written, count = write(tokens, np.int32(START))
    assert int(count) == end
    np.testing.assert_array_equal(written[:, :end], expected_tokens[:, :end])
    assert len(set(expected_tokens[0, START:end])) > 5  # they differ from one another


def test_same_seed_generates_the_same_tokens(example, model, tokens):
    seed = random.SeedGenerator(1)
    write = example["make_generator"](model, 1.0, seed)
    texts = []
    first = seed.state.numpy()
    for state in (first, None, first):
        if state is not None:
            seed.state.assign(state)
        texts.append(write(tokens, np.int32(START))[0].numpy().tolist())
    assert texts[0] == texts[2] != texts[1]


def test_end_token_stops_the_generation(example, model, tokens):
    bias = model.head.bias
    write = example["make_generator"](model, 0, None)
    bias.assign(ops.slice_update(bias, [0], [1e4]))
    written, count = write(tokens, np.int32(START))
    assert int(count) == START + 1 and int(written[0, START]) == 0
    np.testing.assert_array_equal(written[0, :START], tokens[0, :START])
    np.testing.assert_array_equal(written[0, START + 1 :], tokens[0, START + 1 :])


def test_caches_are_updated_in_place(example, model, tokens):
    pytest.importorskip("llvmlite")
    write = example["make_generator"](model, 0.7, random.SeedGenerator(1))
    program = write.inspect(tokens, np.int32(START)).program
    loop = [call for _, call in program.code.calls if getattr(call, "body", None)][-1]
    bases = [move.base for move in loop.moves]
    in_place = {base for base in bases if base[0] == "out" and bases.count(base) == 2}
    assert len(in_place) == 2 * example["BLOCKS"] + 1  # and the text
    assert program.preparations
