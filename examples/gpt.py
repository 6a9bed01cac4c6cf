"""Train a small GPT on the standard library of Python, and generate text.

    python examples/gpt.py --epochs 5 --temperature 0.7

One call of a compiled loop over tokens generates a text. A cache stores the keys and
values of earlier tokens, so the model computes each token once.
"""

import argparse
import sysconfig
from pathlib import Path

import numpy as np

import toolkit
from toolkit import layers, losses, ops, optimizers, random

BATCH, LENGTH = 32, 128
WIDTH, HEADS, BLOCKS = 96, 4, 2
RATE = 3e-3
TOP_K, TOP_P = 20, 0.95  # limits of the sampled tokens
ALPHABET = "\0\n" + "".join(map(chr, range(32, 127)))  # the first character ends a text


def read_pieces():
    """Return the standard library as an array of indices: (pieces, LENGTH + 1)."""
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    text = "\0".join(path.read_text("utf-8", errors="ignore") for path in modules)
    index = {character: i for i, character in enumerate(ALPHABET)}
    codes = np.array([index[c] for c in text if c in index], dtype="int32")
    return codes[: len(codes) // (LENGTH + 1) * (LENGTH + 1)].reshape(-1, LENGTH + 1)


class Block(layers.Layer):
    """Attention to earlier tokens, and a network for each token."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.norms = [layers.LayerNormalization() for _ in range(2)]
        self.qkv, self.projection = layers.Dense(3 * WIDTH), layers.Dense(WIDTH)
        self.mlp_up = layers.Dense(4 * WIDTH, activation="gelu")
        self.mlp_down = layers.Dense(WIDTH)

    def call(self, x, cache=None, position=0):
        """Apply the block to x, (batch, length, WIDTH), that starts at `position`."""
        shape = (-1, x.shape[1], 3, HEADS, WIDTH // HEADS)
        y = ops.reshape(self.qkv(self.norms[0](x)), shape)
        query, keys, values = (y[:, :, i] for i in range(3))
        if cache is not None:
            start = (0, position, 0, 0)
            keys = ops.slice_update(cache[0], start, keys)
            values = ops.slice_update(cache[1], start, values)
        mask = ops.arange(keys.shape[1]) <= position + ops.arange(x.shape[1])[:, None]
        y = ops.dot_product_attention(query, keys, values, mask=mask[None, None])
        x = x + self.projection(ops.reshape(y, (-1, *x.shape[1:])))
        return x + self.mlp_down(self.mlp_up(self.norms[1](x))), (keys, values)


class GPT(toolkit.Model):
    """A language model from tokens, (batch, length), to logits of the next tokens."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.tokens = layers.Embedding(len(ALPHABET), WIDTH)
        self.positions = layers.Embedding(LENGTH, WIDTH)
        self.blocks = [Block() for _ in range(BLOCKS)]
        self.norm, self.head = layers.LayerNormalization(), layers.Dense(len(ALPHABET))

    def call(self, tokens, caches=None, position=0):
        """Return logits, and the updated caches if `caches` has a pair per block."""
        x = self.tokens(tokens)
        x = x + self.positions(position + ops.arange(tokens.shape[1]))
        new_caches = []
        for block, cache in zip(self.blocks, caches or [None] * BLOCKS, strict=True):
            x, pair = block(x, cache=cache, position=position)
            new_caches.append(pair)
        logits = self.head(self.norm(x))
        return logits if caches is None else (logits, new_caches)


def sample(logits, temperature, seed):
    """Sample a token from logits, (batch, vocabulary); the most probable at 0."""
    if temperature == 0:
        return ops.argmax(logits, axis=-1, keepdims=True)
    logits, tokens = ops.top_k(logits / temperature, TOP_K)
    probabilities = ops.softmax(logits)
    is_likely = ops.cumsum(probabilities, axis=-1) - probabilities < TOP_P
    sampled = random.categorical(ops.where(is_likely, logits, -1e9), 1, seed=seed)
    return ops.take_along_axis(tokens, sampled, axis=-1)


def make_generator(model, temperature, seed):
    """Return a function that continues tokens, (1, LENGTH), after the first `count`."""

    def is_unfinished(tokens, count, caches):
        return (count < LENGTH) & (ops.take(tokens[0], count - 1) != 0)

    def generate_token(tokens, count, caches):
        last_token = ops.slice(tokens, (0, count - 1), (1, 1))
        logits, caches = model(last_token, caches=caches, position=count - 1)
        token = ops.cast(sample(logits[:, 0], temperature, seed), "int32")
        return ops.slice_update(tokens, (0, count), token), count + 1, caches

    @toolkit.function
    def generate(tokens, count):
        empty = ops.zeros((1, LENGTH, HEADS, WIDTH // HEADS))
        _, caches = model(tokens, caches=[(empty, empty)] * BLOCKS)
        state = tokens, count, caches
        return ops.while_loop(is_unfinished, generate_token, state)[:2]

    return generate


def main(arguments=None):
    """Train the model, print generated text and the loss, and return the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=200, help="batches per epoch")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--output", type=Path, default="trained", help="the folder")
    options = parser.parse_args(arguments)

    toolkit.utils.set_random_seed(options.seed)
    pieces = np.random.permutation(read_pieces())
    train, test = pieces[20 * BATCH :][: options.steps * BATCH], pieces[: 20 * BATCH]
    model, loss = GPT(), losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizers.AdamW(RATE), loss)
    history = model.fit(train[:, :-1], train[:, 1:], BATCH, options.epochs)
    seed = random.SeedGenerator(options.seed)
    tokens = np.array([[ALPHABET.index(c) for c in "def ".ljust(LENGTH)]], "int32")
    tokens, count = make_generator(model, options.temperature, seed)(
        tokens, np.int32(4)
    )
    print("".join(ALPHABET[i] for i in tokens.numpy()[0, : int(count)]))
    loss = model.evaluate(test[:, :-1], test[:, 1:], verbose=0)
    options.output.mkdir(parents=True, exist_ok=True)
    model.save(options.output / "gpt.keras")
    history.plot(options.output / "gpt.svg")
    print(f"test loss {loss:.4f} per character")
    return model


if __name__ == "__main__":
    main()
