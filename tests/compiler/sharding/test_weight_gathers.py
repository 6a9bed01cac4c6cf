"""Large weights in shards: gathered twice a step, and the memory that this saves."""

import numpy as np
import pytest

import toolkit
from tests.backends.cupy.host import HostDevice
from tests.compiler.sharding.test_steps import compiled, digest
from tests.compiler.sharding.virtual import Split, shard_of
from tests.helpers import concrete_function
from toolkit import layers, ops
from toolkit.backends.cupy.backend import CupyBackend
from toolkit.backends.registry import get_backend
from toolkit.backends.target import Target
from toolkit.comm import local
from toolkit.comm.overlap import can_overlap
from toolkit.compiler.pipeline import compile_program
from toolkit.compiler.sharding.buckets import join_collectives
from toolkit.compiler.sharding.layouts import MeshAxis
from toolkit.compiler.sharding.leafwise import LeafwiseLocal
from toolkit.compiler.sharding.partition import partition
from toolkit.compiler.sharding.propagate import propagate
from toolkit.ir import Kind

RANKS, LAYERS = 4, 8


def step_of(units):
    """Return a training step of equal layers, and its arrays."""
    toolkit.utils.set_random_seed(0)
    hidden = [layers.Dense(units, "relu") for _ in range(LAYERS)]
    model = toolkit.Sequential([toolkit.Input((units,)), *hidden])
    model.compile("sgd", "mse", jit_compile=True)
    x = np.random.default_rng(0).random((8, units), "float32")
    model.train_on_batch(x, x)
    batch = ops.convert_to_tensor(x), ops.convert_to_tensor(x)
    concrete, arrays = concrete_function(model.make_train_function(), batch)
    return concrete, [*arrays, *(np.array(v) for v in concrete.variables)]


def local_graph(concrete, group, is_sharded=True, builder=None, overlaps=can_overlap):
    """Return the graph of a rank, and the shardings of its inputs and outputs."""

    def layout(variable):
        return Split(0) if is_sharded and len(variable.shape) > 1 else None

    count = len(concrete.graph.inputs) - len(concrete.variables)
    inputs = [*[Split(0)] * count, *map(layout, concrete.variables)]
    outputs = [None] * concrete.num_outputs
    outputs += map(layout, concrete.written_variables)
    stored = [i for i in range(count, len(inputs)) if inputs[i]]
    axis = MeshAxis("batch", group, RANKS, even=False)
    sharded = propagate(concrete.graph, axis, inputs, outputs, stored)
    graph = join_collectives(partition(sharded, axis, inputs, builder), overlaps)
    graph.verify()
    return graph, axis, inputs, outputs


def run(concrete, arrays, is_sharded):
    """Return the joined outputs of all ranks, and the collectives of a rank."""

    def compute(group):
        graph, axis, inputs, outputs = local_graph(concrete, group, is_sharded)
        shards = [
            np.ascontiguousarray(shard_of(*pair, axis))
            for pair in zip(arrays, inputs, strict=True)
        ]
        kinds = [n.op.name for n in graph.nodes if n.op.kind is Kind.COLLECTIVE]
        return compiled(graph, shards), kinds, outputs

    results = local.run(RANKS, compute)
    (first, kinds, outputs), *_ = results
    joined = [
        np.concatenate([values[i] for values, *_ in results], layout.axis)
        if layout
        else first[i]
        for i, layout in enumerate(outputs)
    ]
    return joined, kinds


class Ranks:
    """Group of the first of four ranks, which only compiles."""

    rank, size = 0, RANKS

    def __init__(self, is_remote):
        self.is_remote = is_remote


@pytest.fixture(scope="module")
def step():
    return step_of(264)  # 272 KiB for each weight


def test_large_weights_are_gathered_again_in_the_backward_pass(step):
    expected, _ = run(*step, is_sharded=False)
    outputs, kinds = run(*step, is_sharded=True)
    assert digest(outputs) == digest(expected)
    # The weights of the last two layers stay, and the first one is not needed.
    assert kinds.count("all_gather") == LAYERS + LAYERS - 3
    assert kinds.count("reduce_scatter") == LAYERS
    first_scatter = kinds.index("reduce_scatter")
    assert "all_gather" in kinds[first_scatter:]


def test_small_weights_are_gathered_once():
    outputs, kinds = run(*step_of(64), is_sharded=True)
    assert kinds.count("all_gather") == 1


@pytest.fixture(scope="module")
def wide_step():
    concrete, _ = step_of(512)
    return concrete


WEIGHT = 4 * 512 * 512
# The shards of all gradients, which the updates read.
GRADIENTS = LAYERS * WEIGHT // RANKS


@pytest.mark.parametrize("is_remote, limit", [(False, 1.5), (True, 3.5)])
def test_few_whole_weights_are_in_memory(wide_step, is_remote, limit):
    """The arena had eight whole weights with one gather of each of them.

    Over a network, two weights and two gradients are in flight or in use.
    """
    graph, *_ = local_graph(wide_step, Ranks(is_remote))
    program = compile_program(graph, Target(get_backend("numpy")))
    assert GRADIENTS < program.arena_bytes <= GRADIENTS + limit * WEIGHT


def test_few_whole_weights_are_in_memory_of_a_gpu(wide_step):
    group = Ranks(is_remote=False)
    device = HostDevice(None, {})
    device.groups[group] = object()
    graph, *_ = local_graph(wide_step, group, True, LeafwiseLocal, lambda group: True)
    program = compile_program(graph, Target(CupyBackend(device, np)))
    assert program.code is not None, "one launch"
    assert GRADIENTS < program.arena_bytes <= GRADIENTS + 4 * WEIGHT
