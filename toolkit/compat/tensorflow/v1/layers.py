"""`tf.layers` of TensorFlow 1: functions with Variables of the graph as weights."""

from __future__ import annotations

from typing import Any

from toolkit import activations, ops, random as random_numbers
from toolkit.compat.tensorflow.type_aliases import ShapeLike
from toolkit.compat.tensorflow.v1.graph import get_default_graph, record
from toolkit.compat.tensorflow.v1.graph_initializers import zeros_initializer
from toolkit.compat.tensorflow.v1.scopes import get_variable, variable_scope
from toolkit.compat.tensorflow.v1.seeds import GraphSeed
from toolkit.compat.tensorflow.v1.variables import GraphKeys
from toolkit.core.keras_tensor import KerasTensor
from toolkit.core.tensor import Tensor
from toolkit.errors import ShapeError
from toolkit.type_aliases import (
    ActivationLike,
    InitializerLike,
    IntOrInts,
    RegularizerLike,
    SeedLike,
    TensorLike,
)


def _layer_scope(name: str | None, default: str, reuse: Any) -> variable_scope:
    """Return the scope of a layer's weights: a new one unless it has a name."""
    return variable_scope(name, default_name=default, reuse=reuse or None)


def _weights(shape: tuple[Any, ...], units: int, options: dict[str, Any]) -> Any:
    """Return the Variable `kernel`, and `bias` if enabled."""

    def variable(name: str, shape: tuple[Any, ...]) -> Any:
        option_names = ("initializer", "regularizer", "constraint")
        arguments = {key: options[f"{name}_{key}"] for key in option_names}
        trainable = options["trainable"]
        return get_variable(
            name, shape, options["dtype"], trainable=trainable, **arguments
        )

    kernel = variable("kernel", shape)
    return kernel, variable("bias", (units,)) if options["use_bias"] else None


def _finish_layer(y: Any, bias: Any, options: dict[str, Any], axis: int = -1) -> Any:
    """Add the bias, apply the activation, and record the activity penalty."""
    if bias is not None:
        bias_shape = (-1, *[1] * (y.ndim - 2)) if axis == 1 else (-1,)
        y = y + (bias if axis == -1 else ops.reshape(bias, bias_shape))
    if options["activation"] is not None:
        y = activations.get(options["activation"])(y)
    if options["activity_regularizer"] is not None:
        penalty = options["activity_regularizer"](y)
        get_default_graph().add_to_collection(GraphKeys.REGULARIZATION_LOSSES, penalty)
    return y


def dense(
    inputs: Any,
    units: int,
    activation: ActivationLike | None = None,
    use_bias: bool = True,
    kernel_initializer: InitializerLike | None = None,
    bias_initializer: InitializerLike = zeros_initializer(),  # noqa: B008
    kernel_regularizer: RegularizerLike | None = None,
    bias_regularizer: Any = None,
    activity_regularizer: Any = None,
    kernel_constraint: Any = None,
    bias_constraint: Any = None,
    trainable: bool = True,
    name: str | None = None,
    reuse: Any = None,
) -> Any:
    """Compute activation(inputs @ kernel + bias).

    Args:
        inputs: shape (..., features).
        units: features of the result.
        activation: a function, a name, or None.
        use_bias: whether there is a bias.
        kernel_initializer, ...: as in `get_variable`, for each weight.
        activity_regularizer: a function from the result to a penalty.
        trainable: whether optimizers update the weights.
        name: of the scope of the weights; made unique if None.
        reuse: whether to share the weights of an existing scope.

    Example:
        >>> import toolkit.compat.tensorflow.v1 as tf
        >>> with tf.Graph().as_default():
        ...     x = tf.placeholder("float32", (None, 3))
        ...     y = tf.layers.dense(x, 2)
        ...     tuple(y.shape), [v.name for v in tf.global_variables()]
        ((None, 2), ['dense/kernel:0', 'dense/bias:0'])
    """
    options = dict(locals(), dtype=inputs.dtype)
    if inputs.shape[-1] is None:
        raise ShapeError(
            "dense: the last extent of the inputs should be defined; received shape "
            f"{tuple(inputs.shape)}"
        )
    with _layer_scope(name, "dense", reuse):
        kernel, bias = _weights((inputs.shape[-1], units), units, options)
        return _finish_layer(ops.matmul(inputs, kernel), bias, options)


def _conv(ndim: int, options: dict[str, Any]) -> Any:
    """Compute a convolution over `ndim` axes; `options` are the arguments of the
    caller."""
    x, size, filters = options["inputs"], options["kernel_size"], options["filters"]
    size = (size,) * ndim if isinstance(size, int) else tuple(size)
    axis = 1 if options["data_format"] == "channels_first" else -1
    if x.ndim != ndim + 2 or x.shape[axis] is None:
        raise ShapeError(
            f"conv{ndim}d: expected inputs of {ndim + 2} axes and a known number of "
            f"channels; received shape {tuple(x.shape)}"
        )
    options = {**options, "dtype": x.dtype}
    with _layer_scope(options["name"], f"conv{ndim}d", options["reuse"]):
        kernel, bias = _weights((*size, x.shape[axis], filters), filters, options)
        common = ("padding", "data_format", "dilation_rate")
        arguments = {key: options[key] for key in common}
        y = ops.conv(x, kernel, options["strides"], **arguments)
        return _finish_layer(y, bias, options, axis)


def conv1d(
    inputs: TensorLike,
    filters: int,
    kernel_size: IntOrInts,
    strides: IntOrInts = 1,
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: IntOrInts = 1,
    activation: ActivationLike | None = None,
    use_bias: bool = True,
    kernel_initializer: InitializerLike | None = None,
    bias_initializer: InitializerLike = zeros_initializer(),  # noqa: B008
    kernel_regularizer: RegularizerLike | None = None,
    bias_regularizer: Any = None,
    activity_regularizer: Any = None,
    kernel_constraint: Any = None,
    bias_constraint: Any = None,
    trainable: bool = True,
    name: str | None = None,
    reuse: Any = None,
) -> Any:
    """Compute a convolution over one axis; see `conv2d`."""
    return _conv(1, dict(locals()))


def conv2d(
    inputs: TensorLike,
    filters: int,
    kernel_size: IntOrInts,
    strides: IntOrInts = (1, 1),
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: IntOrInts = (1, 1),
    activation: ActivationLike | None = None,
    use_bias: bool = True,
    kernel_initializer: InitializerLike | None = None,
    bias_initializer: InitializerLike = zeros_initializer(),  # noqa: B008
    kernel_regularizer: RegularizerLike | None = None,
    bias_regularizer: Any = None,
    activity_regularizer: Any = None,
    kernel_constraint: Any = None,
    bias_constraint: Any = None,
    trainable: bool = True,
    name: str | None = None,
    reuse: Any = None,
) -> Any:
    """Compute activation(convolution of inputs with kernel + bias), over two axes.

    Args:
        inputs: shape (batch, height, width, channels), or by `data_format`.
        filters: channels of the result.
        kernel_size, strides, dilation_rate: a number, or one for each axis.
        padding: "valid" or "same".
        data_format: "channels_last" or "channels_first".
        activation, use_bias, ...: as in `dense`.
    """
    return _conv(2, dict(locals()))


def _pool(pool: Any, name: str | None, x: TensorLike, *arguments: Any) -> Any:
    size, strides, padding, data_format = arguments
    pool_options = {"padding": padding, "data_format": data_format}
    with get_default_graph().name_scope(name or pool.__name__):
        return pool(x, size, strides, **pool_options)


def max_pooling2d(
    inputs: TensorLike,
    pool_size: IntOrInts,
    strides: IntOrInts,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Any:
    """Return the maximum of each window, over two axes."""
    return _pool(ops.max_pool, name, inputs, pool_size, strides, padding, data_format)


def average_pooling2d(
    inputs: TensorLike,
    pool_size: IntOrInts,
    strides: IntOrInts,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Any:
    """Return the mean of each window, over two axes."""
    pool = ops.average_pool
    return _pool(pool, name, inputs, pool_size, strides, padding, data_format)


max_pooling1d: Any = max_pooling2d
average_pooling1d: Any = average_pooling2d


def flatten(inputs: TensorLike, name: str | None = None) -> Any:
    """Reshape to (batch, -1)."""

    def flat(x: Tensor) -> Any:
        return ops.reshape(x, (x.shape[0], -1))

    return record(flat, (inputs,), name or "flatten")


def dropout(
    inputs: TensorLike,
    rate: float = 0.5,
    noise_shape: ShapeLike | None = None,
    seed: int | None = None,
    training: Any = False,
    name: str | None = None,
) -> Any:
    """Set a fraction of the elements to 0, and scale the remaining ones, in training.

    Args:
        inputs: of any shape.
        rate: the fraction, in [0, 1).
        noise_shape: shape of the random numbers; an extent of 1 shares them.
        seed: an integer, or None for the seed of the graph.
        training: a bool, or a boolean tensor of the graph.
        name: of the operation.
    """
    graph = get_default_graph()

    def drop(x: TensorLike, training: Any, seed: SeedLike) -> Tensor:
        dropped = random_numbers.dropout(x, rate, noise_shape, seed)
        return dropped if training is True else ops.where(training, dropped, x)

    if not isinstance(training, KerasTensor) and not training:
        return record(ops.copy, (inputs,), name or "dropout")
    if not isinstance(training, KerasTensor):
        training = True
    arguments = (inputs, training, GraphSeed(graph, seed))
    return record(drop, arguments, name or "dropout")


def batch_normalization(
    inputs: Any,
    axis: int = -1,
    momentum: float = 0.99,
    epsilon: float = 1e-3,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Any = "zeros",
    gamma_initializer: Any = "ones",
    moving_mean_initializer: Any = "zeros",
    moving_variance_initializer: Any = "ones",
    beta_regularizer: Any = None,
    gamma_regularizer: Any = None,
    beta_constraint: Any = None,
    gamma_constraint: Any = None,
    training: Any = False,
    trainable: bool = True,
    name: str | None = None,
    reuse: Any = None,
) -> Any:
    """Compute gamma * (inputs - mean) / sqrt(variance + epsilon) + beta.

    In training, mean and variance are computed from the batch. The operations that
    update the moving averages are in the collection `GraphKeys.UPDATE_OPS`.

    Args:
        inputs: of any shape with a static extent at `axis`.
        axis: of the features.
        momentum: the weight of the old value in the moving averages.
        epsilon: added to the variance.
        center, scale: whether there is a beta, a gamma.
        beta_initializer, ...: as in `get_variable`, for each weight.
        training: a bool, or a boolean tensor of the graph.
        trainable: whether optimizers update beta and gamma.
        name, reuse: as in `dense`.
    """
    axis %= inputs.ndim
    shape = (inputs.shape[axis],)
    with _layer_scope(name, "batch_normalization", reuse):
        options = locals()

        def variable(key: str, trained: bool) -> Any:
            option_names = (f"{key}_regularizer", f"{key}_constraint")
            regularizer, constraint = (options.get(option) for option in option_names)
            return get_variable(
                key,
                shape,
                inputs.dtype,
                options[f"{key}_initializer"],
                regularizer,
                trained,
                constraint=constraint,
            )

        gamma = variable("gamma", trainable) if scale else None
        beta = variable("beta", trainable) if center else None
        moving = [variable(f"moving_{key}", False) for key in ("mean", "variance")]
        statistics = _statistics(inputs, axis, moving, training, momentum)

    def normalize(
        x: TensorLike,
        mean: TensorLike,
        variance: TensorLike,
        beta: TensorLike,
        gamma: TensorLike,
    ) -> Tensor:
        return ops.batch_normalization(x, mean, variance, axis, beta, gamma, epsilon)

    arguments = (inputs, *statistics, beta, gamma)
    path = f"{moving[0].path.rpartition('/')[0]}/batchnorm"
    with get_default_graph().name_scope(None):
        return record(normalize, arguments, path)


def _statistics(
    x: Any, axis: int, moving: list[Any], training: Any, momentum: float
) -> Any:
    """Return mean and variance, and record the updates of the moving averages."""
    is_symbol = isinstance(training, KerasTensor)
    if not is_symbol and not training:
        return moving
    reduced_axes = [i for i in range(x.ndim) if i != axis]
    batch = ops.moments(x, reduced_axes)
    graph = get_default_graph()
    for v, new in zip(moving, batch, strict=True):
        if is_symbol:
            new = ops.where(training, new, v)
        update = v.assign_sub((v - new) * (1.0 - momentum))
        graph.add_to_collection(GraphKeys.UPDATE_OPS, update)
    if not is_symbol:
        return batch
    return [ops.where(training, b, v) for b, v in zip(batch, moving, strict=True)]
