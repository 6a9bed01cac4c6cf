"""Token-by-token generation with a small GPT, compared with torch and ONNX Runtime.

    python benchmarks/cpu/generation.py --peer-python PEERS/bin/python

Six blocks of width 384 with six heads generate 256 tokens from an empty cache, batch 1.
The key-value caches have their final size, and each token writes one row. `toolkit`
generates all tokens in one call of a compiled loop, and also with one call per token as
all peers do. In the second case, dense layers have 8-bit weights, and the
multiplication rounds activations to 8 bits.
"""

import os
import sys
import tempfile
import warnings
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of harness.py

import numpy as np
from harness import Candidate, main

CASES = ("256 tokens", "256 tokens, int8")
TOKENS, VOCABULARY, WIDTH, HEADS, BLOCKS = 256, 256, 384, 6, 6
THREADS = int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1))


def network():
    """Build a model of a token, its position and the caches: logits, and new caches."""
    import toolkit
    from toolkit import layers, ops

    class Attention(layers.Layer):
        """Attention of one token to cached tokens and itself."""

        def __init__(self):
            super().__init__()
            self.joined = layers.Dense(3 * WIDTH)
            self.out = layers.Dense(WIDTH)

        def call(self, inputs):
            x, position, *caches = inputs
            split = ops.reshape(self.joined(x), (1, 1, 3, HEADS, WIDTH // HEADS))
            index = ops.reshape(position, ())
            query, *new = (split[:, :, i] for i in range(3))
            caches = [
                ops.slice_update(cache, (0, index, 0, 0), y)
                for cache, y in zip(caches, new, strict=True)
            ]
            mask = ops.reshape(ops.arange(TOKENS) <= index, (1, 1, 1, -1))
            x = ops.dot_product_attention(query, *caches, mask=mask)
            return self.out(ops.reshape(x, (1, 1, WIDTH))), *caches

    toolkit.utils.set_random_seed(0)
    token = toolkit.Input(batch_shape=(1, 1), dtype="int32")
    position = toolkit.Input(batch_shape=(1, 1), dtype="int32")
    shape = (1, TOKENS, HEADS, WIDTH // HEADS)
    caches = [toolkit.Input(batch_shape=shape) for _ in range(2 * BLOCKS)]
    x = layers.Embedding(VOCABULARY, WIDTH)(token)
    x = x + layers.Embedding(TOKENS, WIDTH)(position)
    initial_caches = []
    for i in range(BLOCKS):
        y = layers.LayerNormalization()(x)
        y, *pair = Attention()([y, position, *caches[2 * i : 2 * i + 2]])
        initial_caches += pair
        x = x + y
        y = layers.LayerNormalization()(x)
        y = layers.Dense(4 * WIDTH, activation="gelu")(y)
        x = x + layers.Dense(WIDTH)(y)
    logits = layers.Dense(VOCABULARY)(layers.LayerNormalization()(x))
    return toolkit.Model([token, position, *caches], [logits, *initial_caches])


def empty_caches():
    """Return the empty caches of all blocks."""
    shape = (1, TOKENS, HEADS, WIDTH // HEADS)
    return [np.zeros(shape, "float32") for _ in range(2 * BLOCKS)]


def model_of(case):
    """Build the network, with weights in the dtype of the case."""
    model = network()
    if case.endswith("int8"):
        with warnings.catch_warnings():
            # About layers without quantization: normalization.
            warnings.simplefilter("ignore")
            model.quantize("int8")
    return model


def with_while_loop(case):
    """Generate all tokens in one call."""
    import toolkit
    from toolkit import ops

    model = model_of(case)

    @toolkit.function
    def write(count):
        def body(i, token, text, *caches):
            logits, *caches = model([token, ops.reshape(i, (1, 1)), *caches])
            token = ops.cast(ops.argmax(logits, axis=-1), "int32")
            return i + 1, token, ops.slice_update(text, (0, i), token), *caches

        caches = map(ops.convert_to_tensor, empty_caches())
        text = ops.zeros((1, TOKENS), "int32")
        start = (0, ops.zeros((1, 1), "int32"), text, *caches)
        return ops.while_loop(lambda i, *_: i < count, body, start)[2]

    count = ops.convert_to_tensor(np.int32(TOKENS))
    return lambda: write(count), TOKENS


def with_calls(case):
    """Generate with one call per token; the caches are Variables."""
    import toolkit
    from toolkit import ops

    model = model_of(case)
    caches = [toolkit.Variable(x, trainable=False) for x in empty_caches()]

    @toolkit.function
    def step(token, position):
        logits, *new = model([token, position, *caches])
        for cache, value in zip(caches, new, strict=True):
            cache.assign(value)
        return ops.cast(ops.argmax(logits, axis=-1), "int32")

    positions = [ops.convert_to_tensor(np.int32([[i]])) for i in range(TOKENS)]
    first = ops.convert_to_tensor(np.zeros((1, 1), "int32"))

    def write():
        token = first
        for position in positions:
            token = step(token, position)
        return token

    return write, TOKENS


def with_onnxruntime(case):
    """Generate with one ONNX Runtime call per token; caches are updated in place."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    model = network()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "model.onnx"))
        model.export(path, verbose=False)
        if case.endswith("int8"):
            from onnxruntime.quantization import QuantType, quantize_dynamic

            float_path, path = path, str(Path(folder, "int8.onnx"))
            quantize_dynamic(float_path, path, weight_type=QuantType.QInt8)
        session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
    binding = session.io_binding()
    token, position, *caches = (
        onnxruntime.OrtValue.ortvalue_from_numpy(x)
        for x in (*np.zeros((2, 1, 1), "int32"), *empty_caches())
    )
    logits = onnxruntime.OrtValue.ortvalue_from_shape_and_type(
        (1, 1, VOCABULARY), np.float32
    )
    for value, input_info in zip(
        (token, position, *caches), session.get_inputs(), strict=True
    ):
        binding.bind_ortvalue_input(input_info.name, value)
    for value, output_info in zip(
        (logits, *caches), session.get_outputs(), strict=True
    ):
        binding.bind_ortvalue_output(output_info.name, value)

    def write():
        logits_of_tokens = np.zeros((TOKENS, VOCABULARY), "float32")
        token.update_inplace(np.zeros((1, 1), "int32"))
        for i in range(TOKENS):
            position.update_inplace(np.int32([[i]]))
            session.run_with_iobinding(binding)
            logits_of_tokens[i] = logits.numpy()[0, 0]
            token.update_inplace(np.int32([[logits_of_tokens[i].argmax()]]))
        return logits_of_tokens

    if not case.endswith("int8"):
        check(write(), model)
    return write, TOKENS


def check(outputs, model):
    """Raise an error unless a runtime computes the same from the same tokens."""
    token, caches = np.zeros((1, 1), "int32"), empty_caches()
    for i, expected in enumerate(outputs[:8]):
        logits, *caches = model([token, np.int32([[i]]), *caches])
        np.testing.assert_allclose(expected, logits[0, 0], rtol=0, atol=1e-4)
        token = np.int32([[expected.argmax()]])


def with_torch(compiled):
    """Return the function of a torch candidate, eager or compiled."""

    def prepared(case):
        import torch
        from torch import nn
        from torch.nn import functional

        if compiled and case.endswith("int8"):
            return None

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
        if case.endswith("int8"):
            quantize = torch.ao.quantization.quantize_dynamic
            model = quantize(model, {nn.Linear}, dtype=torch.qint8)
        step = torch.compile(model, mode="max-autotune") if compiled else model
        positions = [torch.tensor([i]) for i in range(TOKENS)]
        first = torch.zeros((1, 1), dtype=torch.long)

        def generate():
            token = first
            with torch.inference_mode():
                for position in positions:
                    token = step(token, position)
            return token

        generate()
        return generate, TOKENS

    return prepared


CANDIDATES = (
    Candidate("toolkit", with_while_loop),
    Candidate("toolkit, call by call", with_calls),
    Candidate("ONNX Runtime", with_onnxruntime, peer=True),
    Candidate("torch", with_torch(False), peer=True),
    Candidate("torch.compile", with_torch(True), peer=True),
)

if __name__ == "__main__":
    main(__doc__, CASES, CANDIDATES)
