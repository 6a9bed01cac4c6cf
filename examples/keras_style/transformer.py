"""Train a transformer of subclassed layers to reverse sequences."""

import numpy as np

import toolkit as keras
from toolkit import layers, ops

LENGTH, SYMBOLS = 10, 12


class TokenAndPositionEmbedding(layers.Layer):
    """The sum of a symbol embedding and a position embedding."""

    def __init__(self, maxlen, vocab_size, embed_dim, **kwargs):
        super().__init__(**kwargs)
        self.token_emb = layers.Embedding(vocab_size, embed_dim)
        self.pos_emb = layers.Embedding(maxlen, embed_dim)

    def call(self, x):
        positions = ops.arange(0, ops.shape(x)[-1], 1)
        return self.token_emb(x) + self.pos_emb(positions)


class TransformerBlock(layers.Layer):
    """Attention and a small dense network, both with residual connections."""

    def __init__(self, embed_dim, num_heads, ff_dim, rate=0.0, **kwargs):
        super().__init__(**kwargs)
        self.att = layers.MultiHeadAttention(num_heads, embed_dim // num_heads)
        self.ffn = keras.Sequential(
            [layers.Dense(ff_dim, activation="relu"), layers.Dense(embed_dim)]
        )
        self.layernorm1 = layers.LayerNormalization(epsilon=1e-6)
        self.layernorm2 = layers.LayerNormalization(epsilon=1e-6)
        self.dropout1 = layers.Dropout(rate)
        self.dropout2 = layers.Dropout(rate)

    def call(self, inputs, training=None):
        attended = self.dropout1(self.att(inputs, inputs), training=training)
        out = self.layernorm1(inputs + attended)
        return self.layernorm2(out + self.dropout2(self.ffn(out), training=training))


class Reverser(keras.Model):
    """Two blocks, and a distribution over symbols for each position."""

    def __init__(self):
        super().__init__()
        self.embedding = TokenAndPositionEmbedding(LENGTH, SYMBOLS, 32)
        self.blocks = [TransformerBlock(32, 4, 64, rate=0.0) for _ in range(2)]
        self.head = layers.Dense(SYMBOLS)

    def call(self, x, training=None):
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x, training=training)
        return self.head(x)


def main():
    """Train, evaluate, and return the results."""
    keras.utils.set_random_seed(10)
    rng = np.random.default_rng(0)
    x = rng.integers(0, SYMBOLS, (6000, LENGTH))
    model = Reverser()
    model.compile(
        optimizer=keras.optimizers.AdamW(0.003),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(x[:5000], x[:5000, ::-1], epochs=6, batch_size=64, verbose=0)
    accuracy = model.evaluate(x[5000:], x[5000:, ::-1], verbose=0)[1]
    print(f"symbols in the right place: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    assert main() > 0.95
