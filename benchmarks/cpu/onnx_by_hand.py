"""Handwritten ONNX files, operator by operator, with the weights of a model.

Images are channels first from the input on, and each layer is the operator that a
person would select.
"""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from toolkit import layers


class Hand:
    """Builder of a graph; names of tensors are the names of their nodes."""

    def __init__(self):
        self.nodes, self.constants = [], []

    def node(self, operator, *inputs, outputs=1, **attrs):
        """Add a node; return the name of its result."""
        names = [f"t{len(self.nodes)}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, **attrs))
        return names[0] if outputs == 1 else names

    def constant(self, array, dtype=np.float32):
        """Add a constant; return its name."""
        name = f"c{len(self.constants)}"
        array = np.ascontiguousarray(array, dtype)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def save(self, path, shape, result, opset=20):
        """Write the file: its input is `x`, with a free batch."""
        self.nodes.append(helper.make_node("Identity", [result], ["y"]))
        info = helper.make_tensor_value_info
        inputs = [info("x", TensorProto.FLOAT, ["batch", *shape])]
        outputs = [info("y", TensorProto.FLOAT, None)]
        graph = helper.make_graph(
            self.nodes, "by_hand", inputs, outputs, self.constants
        )
        opsets = [helper.make_opsetid("", opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        path.write_bytes(model.SerializeToString())


# --- networks of layers ---------------------------------------------------------------


def of_layers(model, path):
    """Write the file of a functional model of images or rows of numbers."""
    hand, tensors = Hand(), {}
    for layer in model.layers:
        if isinstance(layer, layers.InputLayer):
            tensors[id(layer.output)] = "x"
            shape = layer.output.shape[1:]
            continue
        inputs = layer.input if isinstance(layer.input, list) else [layer.input]
        names = [tensors[id(x)] for x in inputs]
        tensors[id(layer.output)] = _written(hand, layer, names)
    if len(shape) == 3:
        shape = (shape[2], *shape[:2])
    hand.save(path, shape, tensors[id(model.layers[-1].output)])


def _written(hand, layer, names):
    """Write a layer; return the name of its result."""
    kind = type(layer).__name__
    rule = _RULES.get(kind)
    if rule is None:
        raise SystemExit(f"no hand has written a {kind} yet")
    result = rule(hand, layer, *names)
    activation = getattr(getattr(layer, "activation", None), "__name__", "linear")
    if kind != "ReLU" and activation != "linear":
        operator = {"relu": "Relu", "softmax": "Softmax"}[activation]
        result = hand.node(operator, result)
    return result


def _pads(layer):
    """Return the zeros around an image for padding "same", low ends first."""
    if layer.padding == "valid":
        return [0, 0, 0, 0]
    window = getattr(layer, "kernel_size", None) or layer.pool_size
    extents = layer.input.shape[1:3]
    pairs = []
    for n, k, stride in zip(extents, window, layer.strides, strict=True):
        total = max((n - 1) // stride * stride + k - n, 0)
        pairs.append((total // 2, total - total // 2))
    return [low for low, _ in pairs] + [high for _, high in pairs]


def _conv(hand, layer, x):
    depthwise = type(layer).__name__ == "DepthwiseConv2D"
    kernel = layer.get_weights()[0]
    order = (2, 3, 0, 1) if depthwise else (3, 2, 0, 1)
    inputs = [x, hand.constant(kernel.transpose(order))]
    if layer.use_bias:
        inputs.append(hand.constant(layer.get_weights()[1]))
    group = kernel.shape[2] if depthwise else 1
    attrs = {"strides": list(layer.strides), "pads": _pads(layer), "group": group}
    return hand.node("Conv", *inputs, **attrs)


def _batch_normalization(hand, layer, x):
    weights = [hand.constant(w) for w in layer.get_weights()]
    return hand.node("BatchNormalization", x, *weights, epsilon=layer.epsilon)


def _relu(hand, layer, x):
    if layer.max_value is None:
        return hand.node("Relu", x)
    return hand.node("Clip", x, hand.constant(0.0), hand.constant(layer.max_value))


def _dense(hand, layer, x):
    kernel, bias = layer.get_weights()
    shape = getattr(layer, "_by_hand_shape", None)
    if shape is not None:  # the flattened tensor had its channels first
        rows, columns, channels = shape
        kernel = kernel.reshape(rows, columns, channels, -1).transpose(2, 0, 1, 3)
        kernel = kernel.reshape(rows * columns * channels, -1)
    return hand.node("Gemm", x, hand.constant(kernel), hand.constant(bias))


def _max_pool(hand, layer, x):
    attrs = {"kernel_shape": list(layer.pool_size), "strides": list(layer.strides)}
    return hand.node("MaxPool", x, pads=_pads(layer), **attrs)


def _zero_padding(hand, layer, x):
    (top, bottom), (left, right) = layer.padding
    pads = hand.constant([0, 0, top, left, 0, 0, bottom, right], np.int64)
    return hand.node("Pad", x, pads)


_RULES = {
    "Conv2D": _conv,
    "DepthwiseConv2D": _conv,
    "BatchNormalization": _batch_normalization,
    "ReLU": _relu,
    "Activation": lambda hand, layer, x: x,
    "Add": lambda hand, layer, a, b: hand.node("Add", a, b),
    "ZeroPadding2D": _zero_padding,
    "MaxPooling2D": _max_pool,
    "GlobalAveragePooling2D": lambda hand, layer, x: hand.node(
        "Flatten", hand.node("GlobalAveragePool", x)
    ),
    "Flatten": lambda hand, layer, x: hand.node("Flatten", x),
    "Dropout": lambda hand, layer, x: x,
    "Dense": _dense,
}


# --- sequences ------------------------------------------------------------------------


def of_lstm(model, path):
    """Write two LSTMs and a classifier."""
    hand = Hand()
    x = hand.node("Transpose", "x", perm=[1, 0, 2])
    for layer in model.layers[-3:-1]:
        kernel, recurrent, bias = layer.get_weights()
        weights = [hand.constant(_gates(w.T)[None]) for w in (kernel, recurrent)]
        biases = np.concatenate([_gates(bias), np.zeros_like(bias)])
        inputs = (x, *weights, hand.constant(biases[None]))
        y, last, _ = hand.node("LSTM", *inputs, outputs=3, hidden_size=layer.units)
        x = hand.node("Squeeze", y, hand.constant([1], np.int64))
    last = hand.node("Squeeze", last, hand.constant([0], np.int64))
    result = _dense(hand, model.layers[-1], last)
    hand.save(path, model.input_shape[1:], result)


def _gates(weights):
    """Reorder gates to ONNX's order: input, forget, candidate, output."""
    i, f, c, o = np.split(weights, 4)
    return np.concatenate([i, o, f, c])


def of_encoder(model, path, heads):
    """Write blocks of attention and two dense layers, each after a normalization."""
    hand, result = Hand(), "x"
    blocks = [layer for layer in model.layers if layer.name.startswith("attention")]
    for number in range(len(blocks)):
        result = _block(hand, model, number, heads, result)
    hand.save(path, model.input_shape[1:], result)


def _block(hand, model, number, heads, x):
    def weights(name):
        return model.get_layer(f"{name}_{number}").get_weights()

    def dense(name, x):
        kernel, bias = map(hand.constant, weights(name))
        return hand.node("Add", hand.node("MatMul", x, kernel), bias)

    def normalized(name, x):
        scale, bias = map(hand.constant, weights(name))
        return hand.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-3)

    y = normalized("before", x)
    x = hand.node("Add", x, _attention(hand, weights("attention"), heads, y))
    y = hand.node("Gelu", dense("wide", normalized("behind", x)))
    return hand.node("Add", x, dense("narrow", y))


def _attention(hand, weights, heads, x):
    query, query_bias, key, key_bias, value, value_bias, out, out_bias = weights
    width = query.shape[0]

    def projected(kernel, bias):
        y = hand.node("MatMul", x, hand.constant(kernel.reshape(width, -1)))
        y = hand.node("Add", y, hand.constant(bias.reshape(-1)))
        shape = hand.constant([0, 0, heads, -1], np.int64)
        return hand.node("Reshape", y, shape)

    q = hand.node("Transpose", projected(query, query_bias), perm=[0, 2, 1, 3])
    k = hand.node("Transpose", projected(key, key_bias), perm=[0, 2, 3, 1])
    v = hand.node("Transpose", projected(value, value_bias), perm=[0, 2, 1, 3])
    scale = hand.constant(1 / np.sqrt(query.shape[-1]))
    logits = hand.node("Mul", hand.node("MatMul", q, k), scale)
    mixed = hand.node("MatMul", hand.node("Softmax", logits, axis=-1), v)
    mixed = hand.node("Transpose", mixed, perm=[0, 2, 1, 3])
    joined = hand.node("Reshape", mixed, hand.constant([0, 0, -1], np.int64))
    y = hand.node("MatMul", joined, hand.constant(out.reshape(-1, width)))
    return hand.node("Add", y, hand.constant(out_bias))
