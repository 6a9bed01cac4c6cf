"""Weights and slots in parts: tensor parallel cuts, ZeRO's first stage, FSDP."""

from collections import Counter

import numpy as np
import pytest

import toolkit
from tests.compiler.sharding.test_steps import compiled, digest, tokens
from tests.compiler.sharding.virtual import Split, shard_of
from tests.helpers import concrete_function
from toolkit import layers, ops
from toolkit.comm import local
from toolkit.compiler.sharding.buckets import join_collectives
from toolkit.compiler.sharding.layouts import MeshAxis
from toolkit.compiler.sharding.partition import partition
from toolkit.compiler.sharding.propagate import propagate
from toolkit.ir import Kind

ROWS, LEAVES = 8, 4


def block():
    """A transformer's block with four heads."""
    tokens = toolkit.Input((6,), dtype="int32")
    x = layers.Embedding(64, 16)(tokens)
    x = x + layers.MultiHeadAttention(4, 4, name="attention")(x, x)
    hidden = layers.Dense(32, activation="gelu", name="up")(
        layers.LayerNormalization()(x)
    )
    x = x + layers.Dense(16, name="down")(hidden)
    x = layers.GlobalAveragePooling1D()(x)
    return toolkit.Model(tokens, layers.Dense(5, activation="softmax")(x))


@pytest.fixture(scope="module")
def step():
    toolkit.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    model = block()
    x = tokens(random, ROWS)
    y = random.integers(0, 5, ROWS).astype("int32")
    adam = toolkit.optimizers.Adam(name="adam")
    model.compile(adam, "sparse_categorical_crossentropy", jit_compile=True)
    model.train_on_batch(x, y)
    batch = ops.convert_to_tensor(x), ops.convert_to_tensor(y)
    concrete, arrays = concrete_function(model.make_train_function(), batch)
    arrays += [np.array(v) for v in concrete.variables]
    return concrete, arrays, compiled(concrete.graph, arrays)


def megatron_layout(path, shape):
    """The cuts of Megatron: by heads, and by the features of the hidden layer."""
    path = path.removeprefix("adam/")
    if "attention" in path and "output" in path:
        return Split(0) if len(shape) == 3 else None
    if "attention" in path:
        return Split(1) if len(shape) == 3 else Split(0) if len(shape) == 2 else None
    if path.startswith("up"):
        return Split(len(shape) - 1)
    return Split(0) if path.startswith("down") and len(shape) == 2 else None


def slot_layout(path, shape):
    is_slot = "momentum" in path or "velocity" in path
    return Split(0) if is_slot and len(shape) > 1 else None


def weight_layout(path, shape):
    return Split(0) if len(shape) > 1 else None


def run_sharded(step, rule, ranks, batch):
    """The results of a step put together, the collectives, and the bytes of a rank."""
    concrete, arrays, _ = step
    count = len(arrays) - len(concrete.variables)
    data = [Split(0) if batch else None] * count
    inputs = [*data, *(rule(v.path, v.shape) for v in concrete.variables)]
    layouts = [None] * concrete.num_outputs
    layouts += [rule(v.path, v.shape) for v in concrete.written_variables]
    stored = [i for i in range(count, len(inputs)) if batch and inputs[i]]

    def compute(group):
        axis = MeshAxis("axis", group, LEAVES if batch else ranks, even=False)
        rank_results = propagate(concrete.graph, axis, inputs, layouts, stored)
        graph = join_collectives(partition(rank_results, axis, inputs))
        graph.verify()
        local_arrays = [
            np.ascontiguousarray(shard_of(*pair, axis))
            for pair in zip(arrays, inputs, strict=True)
        ]
        kinds = [n.op.name for n in graph.nodes if n.op.kind is Kind.COLLECTIVE]
        return (
            compiled(graph, local_arrays),
            kinds,
            sum(x.nbytes for x in local_arrays[count:]),
        )

    rank_results = local.run(ranks, compute)
    outputs = [
        rank_results[0][0][i]
        if layout is None
        else np.concatenate([results[i] for results, _, _ in rank_results], layout.axis)
        for i, layout in enumerate(layouts)
    ]
    return (
        outputs,
        Counter(rank_results[0][1]),
        max(size for _, _, size in rank_results),
    )


def assert_near_expected(step, outputs):
    concrete, _, expected = step
    names = ["logs"] * concrete.num_outputs + [
        v.path for v in concrete.written_variables
    ]
    for name, y, result in zip(names, expected, outputs, strict=True):
        if y.dtype.kind == "f" and "key" not in name:  # a bias there has noise alone
            scale = float(np.abs(y).max(initial=1e-6))
            assert np.abs(y - result).max(initial=0) <= 1e-4 * scale, name


@pytest.mark.parametrize("ranks", [2, 4])
def test_tensor_parallelism_follows_from_layouts(step, ranks):
    outputs, collectives, _ = run_sharded(step, megatron_layout, ranks, batch=False)
    assert_near_expected(step, outputs)
    # One after attention, one after the two layers; forward and backward.
    assert collectives == {"all_reduce": 4}


@pytest.mark.parametrize("rule", [slot_layout, weight_layout])
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.one_in(3)
def test_sharded_weights_change_no_bits(step, rule, ranks):
    plain, kinds, size = run_sharded(step, lambda path, shape: None, ranks, batch=True)
    outputs, collectives, saved_bytes = run_sharded(step, rule, ranks, batch=True)
    assert_near_expected(step, outputs)
    assert digest(outputs) == digest(plain)
    assert kinds == {"all_reduce": 1} and collectives["reduce_scatter"] > 0
    if ranks == 4:
        slots_only = rule is slot_layout
        expected_share = (1 + 2 / 4) / 3 if slots_only else 1 / 4
        assert saved_bytes <= size * (expected_share + 0.05)
