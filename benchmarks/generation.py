"""Text of a small GPT, one token after the other, beside torch with a static cache.

    python benchmarks/generation.py --peer-python PEERS/bin/python

Six blocks of width 384 and six heads, 256 tokens from an empty cache, batch 1: keys and
values of earlier tokens stay in arrays of their final size, which each token writes one
row of. `toolkit` calls a compiled step for each token, whose caches are Variables.
"""

from harness import Candidate, main

CASES = ("256 tokens",)
TOKENS, VOCABULARY, WIDTH, HEADS, BLOCKS = 256, 256, 384, 6, 6


def with_toolkit(case):
    """A compiled step for each token."""
    import numpy as np

    import toolkit
    from toolkit import layers, ops

    class Attention(layers.Layer):
        """Attention of one token to itself and those before it, which are kept."""

        def __init__(self):
            super().__init__()
            self.joined = layers.Dense(3 * WIDTH)
            self.out = layers.Dense(WIDTH)
            shape = (1, TOKENS, HEADS, WIDTH // HEADS)
            self.keys = self.add_weight(shape, "zeros", trainable=False)
            self.values = self.add_weight(shape, "zeros", trainable=False)

        def call(self, x, position):
            split = ops.reshape(self.joined(x), (1, 1, 3, HEADS, WIDTH // HEADS))
            query, key, value = (split[:, :, i] for i in range(3))
            for cache, new in ((self.keys, key), (self.values, value)):
                cache.assign(ops.slice_update(cache, (0, position, 0, 0), new))
            mask = ops.arange(TOKENS) <= position
            x = ops.dot_product_attention(
                query, self.keys, self.values, mask=ops.reshape(mask, (1, 1, 1, -1))
            )
            return self.out(ops.reshape(x, (1, 1, WIDTH)))

    toolkit.utils.set_random_seed(0)
    tokens = layers.Embedding(VOCABULARY, WIDTH)
    positions = layers.Embedding(TOKENS, WIDTH)
    blocks = [
        (
            layers.LayerNormalization(),
            Attention(),
            layers.LayerNormalization(),
            layers.Dense(4 * WIDTH, activation="gelu"),
            layers.Dense(WIDTH),
        )
        for _ in range(BLOCKS)
    ]
    last, head = layers.LayerNormalization(), layers.Dense(VOCABULARY)

    @toolkit.function
    def step(token, position):
        x = tokens(token) + positions(ops.reshape(position, (1, 1)))
        for before, attention, middle, up, down in blocks:
            x = x + attention(before(x), position)
            x = x + down(up(middle(x)))
        return ops.argmax(head(last(x)), axis=-1)

    places = [ops.convert_to_tensor(np.int32(i)) for i in range(TOKENS)]
    first = ops.convert_to_tensor(np.zeros((1, 1), "int32"))
    step(first, places[0])

    def generate():
        token = first
        for place in places:
            token = step(token, place)
        return token

    return generate, TOKENS


def of_torch(compiled):
    """A candidate's function: torch, eager or compiled."""

    def prepared(case):
        import torch
        from torch import nn
        from torch.nn import functional

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.before, self.middle = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
                self.joined = nn.Linear(WIDTH, 3 * WIDTH)
                self.out = nn.Linear(WIDTH, WIDTH)
                self.up, self.down = (
                    nn.Linear(WIDTH, 4 * WIDTH),
                    nn.Linear(4 * WIDTH, WIDTH),
                )
                shape = (1, HEADS, TOKENS, WIDTH // HEADS)
                self.register_buffer("keys", torch.zeros(shape))
                self.register_buffer("values", torch.zeros(shape))

            def forward(self, x, position, mask):
                split = self.joined(self.before(x)).view(1, 1, 3, HEADS, WIDTH // HEADS)
                query, key, value = split.permute(2, 0, 3, 1, 4)
                self.keys.index_copy_(2, position, key)
                self.values.index_copy_(2, position, value)
                y = functional.scaled_dot_product_attention(
                    query, self.keys, self.values, attn_mask=mask
                )
                x = x + self.out(y.transpose(1, 2).reshape(1, 1, WIDTH))
                return x + self.down(functional.gelu(self.up(self.middle(x))))

        class GPT(nn.Module):
            def __init__(self):
                super().__init__()
                self.tokens = nn.Embedding(VOCABULARY, WIDTH)
                self.positions = nn.Embedding(TOKENS, WIDTH)
                self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
                self.last, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)
                self.register_buffer("all", torch.arange(TOKENS))

            def forward(self, token, position):
                x = self.tokens(token) + self.positions(position)
                mask = (self.all <= position).view(1, 1, 1, TOKENS)
                for block in self.blocks:
                    x = block(x, position, mask)
                return self.head(self.last(x)).argmax(-1)

        torch.manual_seed(0)
        model = GPT().eval()
        step = torch.compile(model, mode="max-autotune") if compiled else model
        places = [torch.tensor([i]) for i in range(TOKENS)]
        first = torch.zeros((1, 1), dtype=torch.long)

        def generate():
            token = first
            with torch.inference_mode():
                for place in places:
                    token = step(token, place)
            return token

        generate()
        return generate, TOKENS

    return prepared


CANDIDATES = (
    Candidate("toolkit", with_toolkit),
    Candidate("torch", of_torch(False), peer=True),
    Candidate("torch.compile", of_torch(True), peer=True),
)

if __name__ == "__main__":
    main(__doc__, CASES, CANDIDATES)
