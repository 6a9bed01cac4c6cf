"""Test random graphs of images with any orders of axes against ONNX."""

import random

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import toolkit as tk


class Graph:
    """A graph that grows by random nodes and tracks the shape of each value."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.random = np.random.default_rng(seed)
        self.nodes, self.arrays = [], []
        self.shapes = {"x": (2, 3, 6, 5)}

    def add(self, op, inputs, shape, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        self.shapes[name] = tuple(shape)

    def constant(self, value):
        name = f"c{len(self.arrays)}"
        self.arrays.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weights(self, *shape):
        return self.constant(self.random.normal(0, 0.5, shape).astype("float32"))

    def grow(self):
        name = self.chance.choice(list(self.shapes)[-3:])
        shape = self.shapes[name]
        self.chance.choice(STEPS)(self, name, shape)

    def model(self):
        outputs = list(self.shapes)[-3:]
        graph = helper.make_graph(
            self.nodes,
            "graph",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 6, 5])],
            [
                helper.make_tensor_value_info(n, TensorProto.FLOAT, None)
                for n in outputs
            ],
            self.arrays,
        )
        opsets = [helper.make_opsetid("", 20)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)


# --- steps ----------------------------------------------------------------------------


def relu(g, x, shape):
    g.add(g.chance.choice(("Relu", "Tanh", "Sigmoid")), [x], shape)


def transpose(g, x, shape):
    axes = g.chance.sample(range(len(shape)), len(shape))
    g.add("Transpose", [x], [shape[i] for i in axes], perm=axes)


def conv(g, x, shape):
    if len(shape) == 4 and min(shape) > 0:
        filters = g.chance.choice((2, 4))
        w = g.weights(filters, shape[1], 3, 1)
        out = (shape[0], filters, *shape[2:])
        g.add("Conv", [x, w, g.weights(filters)], out, pads=[1, 0, 1, 0])


def pool(g, x, shape):
    if len(shape) == 4 and min(shape[2:]) > 2:
        out = (*shape[:2], shape[2] - 1, shape[3] - 1)
        op = g.chance.choice(("MaxPool", "AveragePool"))
        g.add(op, [x], out, kernel_shape=[2, 2])


def shrink(g, x, shape):
    if len(shape) > 2:
        count = g.chance.randint(1, len(shape) - 1)
        axes = sorted(g.chance.sample(range(len(shape)), count))
        keepdims = g.chance.randint(0, 1)
        limits = [1 if i in axes else n for i, n in enumerate(shape)]
        out = limits if keepdims else [n for i, n in enumerate(shape) if i not in axes]
        op = g.chance.choice(("ReduceMean", "ReduceMax", "ReduceL2"))
        g.add(op, [x, g.constant(axes)], out, keepdims=keepdims)


def add(g, x, shape):
    candidates = [n for n, s in g.shapes.items() if s == shape]
    if g.chance.random() < 0.5:
        g.add("Add", [x, g.chance.choice(candidates)], shape)
    else:
        small = [g.chance.choice((1, n)) for n in shape[g.chance.randint(0, 2) :]]
        g.add(g.chance.choice(("Add", "Mul")), [x, g.weights(*small)], shape)


def concat(g, x, shape):
    axis = g.chance.randrange(len(shape))
    candidates = [n for n, s in g.shapes.items() if s == shape]
    out = [2 * n if i == axis else n for i, n in enumerate(shape)]
    if np.prod(out) < 4000:
        g.add("Concat", [x, g.chance.choice(candidates)], out, axis=axis)


def cut(g, x, shape):
    axis = g.chance.randrange(len(shape))
    if shape[axis] > 2:
        out = [n - 1 if i == axis else n for i, n in enumerate(shape)]
        operands = [g.constant([1]), g.constant([1 << 40]), g.constant([axis])]
        g.add("Slice", [x, *operands], out)


def pad(g, x, shape):
    if np.prod(shape) < 2000:
        widths = [g.chance.randint(0, 1) for _ in range(2 * len(shape))]
        ends = zip(widths[: len(shape)], widths[len(shape) :], strict=True)
        out = [n + a + b for n, (a, b) in zip(shape, ends, strict=True)]
        g.add("Pad", [x, g.constant(widths)], out)


def softmax(g, x, shape):
    g.add("Softmax", [x], shape, axis=g.chance.randrange(len(shape)))


def unsqueeze(g, x, shape):
    if len(shape) < 5:
        axis = g.chance.randint(0, len(shape))
        out = [*shape[:axis], 1, *shape[axis:]]
        g.add("Unsqueeze", [x, g.constant([axis])], out)


def squeeze(g, x, shape):
    if 1 in shape and len(shape) > 2:
        axis = shape.index(1)
        g.add("Squeeze", [x, g.constant([axis])], shape[:axis] + shape[axis + 1 :])


def reshape(g, x, shape):
    if len(shape) > 2:
        out = [*shape[:-2], shape[-2] * shape[-1]]
        g.add("Reshape", [x, g.constant([*out[:-1], -1])], out)


def norm(g, x, shape):
    if len(shape) == 4:
        parameters = [g.weights(shape[1]) for _ in range(2)]
        g.add("InstanceNormalization", [x, *parameters], shape)


def gather(g, x, shape):
    axis = g.chance.randrange(len(shape))
    out = [2 if i == axis else n for i, n in enumerate(shape)]
    g.add("Gather", [x, g.constant([-1, 0])], out, axis=axis)


def argmax(g, x, shape):
    if len(shape) > 2:
        axis = g.chance.randrange(len(shape))
        out = [1 if i == axis else n for i, n in enumerate(shape)]
        g.add("ArgMax", [x], out, axis=axis)
        name = list(g.shapes)[-1]
        g.add("Cast", [name], out, to=TensorProto.FLOAT)
        del g.shapes[name]


def split(g, x, shape):
    axis = g.chance.randrange(len(shape))
    if shape[axis] > 1:
        out = [1 if i == axis else n for i, n in enumerate(shape)]
        remaining = [n - 1 if i == axis else n for i, n in enumerate(shape)]
        sizes = g.constant([1, shape[axis] - 1])
        g.add("Split", [x, sizes], out, axis=axis)
        name = f"{list(g.shapes)[-1]}_rest"
        g.nodes[-1].output.append(name)
        g.shapes[name] = tuple(remaining)


STEPS = (relu, transpose, transpose, conv, conv, pool, shrink, add, add, concat, cut)
STEPS += (pad, softmax, unsqueeze, squeeze, reshape, norm, gather, argmax, split)


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs(seed, tmp_path):
    graph = Graph(seed)
    while len(graph.nodes) < 12:
        graph.grow()
    model = graph.model()
    onnx.save(model, tmp_path / "model.onnx")
    x = np.random.default_rng(seed).normal(size=(2, 3, 6, 5)).astype("float32")
    expected = ReferenceEvaluator(model).run(None, {"x": x})
    loaded = tk.saving.load_onnx(tmp_path / "model.onnx")
    for outputs in (loaded(x), loaded.predict_on_batch(x), tk.function(loaded)(x)):
        for y, reference in zip(outputs, expected, strict=True):
            assert y.shape == reference.shape
            assert np.allclose(np.asarray(y), reference, 1e-4, 1e-5)
