"""Check the requirements of every layer in one function."""

import json
from tempfile import TemporaryDirectory

import numpy as np

import toolkit
from tests.helpers import assert_close
from toolkit import GradientTape, dtypes, ops, tree


def check_layer(cls, arguments, *shapes, dtype="float32", call=None):
    """Build, infer shapes, trace, train, serialize and lower the precision of a layer.

    Args:
        cls: the layer's class.
        arguments: of its constructor.
        shapes: of its inputs; a list of shapes for an argument that is a list.
        dtype: of the inputs.
        call: more arguments of its call.
    """
    call = call or {}
    rng = np.random.default_rng(0)
    inputs = [_map(lambda s: _sample(rng, s, dtype), shape) for shape in shapes]
    layer = cls(**arguments)
    expected_shape = layer.compute_output_shape(*shapes)
    unknown = [_map(lambda s: (None, *s[1:]), shape) for shape in shapes]
    symbols = [
        _map(lambda s: toolkit.Input(batch_shape=s, dtype=dtype), s) for s in unknown
    ]
    inferred = tree.flatten(layer(*symbols, **call))
    assert layer.built
    outputs = layer(*inputs, **call)
    flat = tree.flatten(outputs)
    if not call:
        assert tree.map_structure(lambda x: x.shape, outputs) == expected_shape
    for symbol, output in zip(inferred, flat, strict=True):
        assert (symbol.shape[1:], symbol.dtype) == (output.shape[1:], output.dtype)
        assert output.dtype == layer.compute_dtype
    traced = toolkit.function(lambda *xs: layer(*xs, **call))(*inputs)
    for a, b in zip(tree.flatten(traced), flat, strict=True):
        assert_close(a, b)
    _check_config(cls, layer, inputs, call, flat)
    _check_step(layer, inputs, call)
    _check_build(cls, arguments, shapes, layer)
    for policy in ("mixed_bfloat16", "mixed_float16", "float64"):
        _check_policy(cls, arguments, inputs, call, policy)
    if dtype == "float32":
        _check_model(cls, arguments, unknown, inputs, call)


def _map(function, shape):
    return [function(s) for s in shape] if isinstance(shape, list) else function(shape)


def _sample(rng, shape, dtype):
    x = rng.normal(size=shape) if dtypes.is_float(dtype) else rng.integers(0, 5, shape)
    return ops.convert_to_tensor(x.astype(dtype))


def _check_config(cls, layer, inputs, call, outputs):
    config = json.loads(json.dumps(layer.get_config()))
    twin = cls.from_config(config)
    assert json.loads(json.dumps(twin.get_config())) == config
    twin(*inputs, **call)
    twin.set_weights(layer.get_weights())
    for a, b in zip(tree.flatten(twin(*inputs, **call)), outputs, strict=True):
        assert_close(a, b)


def _check_step(layer, inputs, call):
    with GradientTape() as tape:
        outputs = tree.flatten(layer(*inputs, training=True, **call))
        loss = sum(ops.sum(ops.square(x - 1.0)) for x in outputs)
    weights = layer.trainable_weights
    gradients = tape.gradient(loss, weights)
    for variable, gradient in zip(weights, gradients, strict=True):
        assert gradient is not None, variable.path
        assert np.isfinite(gradient.numpy()).all()
        variable.assign_sub(1e-3 * gradient)


def _check_build(cls, arguments, shapes, layer):
    """Check that a built layer has the state of a called layer."""
    twin = cls(**arguments)
    twin.build(*shapes)
    assert twin.built
    assert [(v.name, v.shape) for v in twin.variables] == [
        (v.name, v.shape) for v in layer.variables
    ]
    config = twin.get_build_config()
    if config:
        rebuilt = cls(**arguments)
        rebuilt.build_from_config(config)
        assert len(rebuilt.weights) == len(twin.weights)


def _check_policy(cls, arguments, inputs, call, policy):
    layer = cls(**arguments, dtype=policy)
    symbols = tree.map_structure(
        lambda x: toolkit.KerasTensor(x.shape, x.dtype), inputs
    )
    expected = tree.flatten(layer(*symbols, **call))
    outputs = tree.flatten(layer(*inputs, **call))
    for x, symbol in zip(outputs, expected, strict=True):
        assert (x.shape, x.dtype) == (symbol.shape, symbol.dtype)
        assert x.dtype == layer.compute_dtype
        assert np.isfinite(x.numpy().astype("float32")).all()
    assert {v.dtype for v in layer.weights} <= {layer.variable_dtype}


def _check_model(cls, arguments, shapes, inputs, call):
    """Check that the layer trains in a compiled model and is stored in a file."""
    symbols = [_map(lambda s: toolkit.Input(batch_shape=s), shape) for shape in shapes]
    outputs = cls(**arguments)(*symbols, **call)
    model = toolkit.Model(symbols, outputs)
    targets = model(inputs)
    if model.trainable_weights:
        _check_training(model, inputs, targets)
    with TemporaryDirectory() as folder:
        model.save(f"{folder}/model.keras")
        loaded = toolkit.saving.load_model(f"{folder}/model.keras")
    for a, b in zip(
        tree.flatten(loaded(inputs)), tree.flatten(model(inputs)), strict=True
    ):
        assert_close(a, b)


def _check_training(model, inputs, targets):
    model.compile("sgd", tree.map_structure(lambda _: "mse", targets))
    loss = model.train_on_batch(inputs, targets)
    assert np.isfinite(loss if np.isscalar(loss) else np.array(loss)).all()
