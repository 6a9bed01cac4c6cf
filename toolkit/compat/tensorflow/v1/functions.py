"""Functions with other names, or other arguments, in TensorFlow 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

from toolkit import dtypes, ops, random as random_numbers
from toolkit.compat.tensorflow import (
    arrays,
    control,
    debugging,
    indexing,
    linalg,
    math,
    nn as nn2,
    random,
)
from toolkit.compat.tensorflow.boundary import make_recordable
from toolkit.compat.tensorflow.type_aliases import ShapeLike
from toolkit.compat.tensorflow.v1 import convolutions
from toolkit.compat.tensorflow.v1.basics import control_dependencies
from toolkit.compat.tensorflow.v1.operations import print_op
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ArgumentTypeError, ShapeError
from toolkit.type_aliases import IntOrInts, SeedLike, Shape, TensorLike


def accept_legacy_names(
    function: Callable[..., Any], **older: str
) -> Callable[..., Any]:
    """Wrap a function so that it also accepts legacy argument names.

    Args:
        function: of TensorFlow 2.
        older: legacy name -> name.

    Raises:
        ArgumentTypeError: if an argument is given under both.
    """

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        for old in older.keys() & kwargs.keys():
            if kwargs.get(older[old]) is not None:
                raise ArgumentTypeError(
                    f"{function.__name__}: expected {older[old]} or {old}; received "
                    "both"
                )
            kwargs[older[old]] = kwargs.pop(old)
        return function(*args, **kwargs)

    return wrapper


def top_level_names(module: Any, names: str) -> dict[str, Callable[..., Any]]:
    """Return functions of a module that were in `tf` directly: "name" or
    "older=name"."""
    functions = {}
    for pair in names.split():
        older, _, name = pair.partition("=")
        functions[older] = getattr(module, name or older)
    return functions


_AXES = {"reduction_indices": "axis", "keep_dims": "keepdims"}
_TYPES = {"double": "float64", "float": "float32"}

FUNCTIONS: dict[str, Any] = {
    **{
        f"reduce_{name}": accept_legacy_names(getattr(math, f"reduce_{name}"), **_AXES)
        for name in "all any logsumexp max mean min prod sum".split()
    },
    **{
        f"to_{name}": partial(vars(arrays)["cast"], dtype=dtype)
        for name in "bfloat16 double float int32 int64".split()
        for dtype in [_TYPES.get(name, name)]
    },
    **top_level_names(arrays, "lin_space=linspace"),
    **top_level_names(
        linalg,
        "cholesky cross diag=tensor_diag matrix_band_part=band_part "
        "matrix_determinant=det matrix_diag=diag matrix_diag_part=diag_part "
        "matrix_inverse=inv matrix_set_diag=set_diag matrix_solve=solve "
        "matrix_transpose matrix_triangular_solve=triangular_solve qr "
        "self_adjoint_eig=eigh self_adjoint_eigvals=eigvalsh svd trace",
    ),
    **top_level_names(
        math,
        "accumulate_n angle betainc bincount ceil conj confusion_matrix count_nonzero "
        "cumprod digamma igamma igammac lbeta lgamma polygamma zeta "
        "erf erfc expm1 floordiv global_norm imag is_finite is_inf is_nan log log1p "
        "log_sigmoid mod=floormod real reciprocal rint rsqrt segment_max segment_mean "
        "segment_min segment_prod segment_sum squared_difference unsorted_segment_max "
        "unsorted_segment_mean unsorted_segment_min unsorted_segment_prod "
        "unsorted_segment_sum",
    ),
    **top_level_names(
        random,
        "multinomial=categorical random_normal=normal random_shuffle=shuffle "
        "random_uniform=uniform truncated_normal",
    ),
    "arg_max": accept_legacy_names(math.argmax, dimension="axis"),
    "arg_min": accept_legacy_names(math.argmin, dimension="axis"),
    "argmax": accept_legacy_names(math.argmax, dimension="axis"),
    "argmin": accept_legacy_names(math.argmin, dimension="axis"),
    "cond": accept_legacy_names(control.cond, fn1="true_fn", fn2="false_fn"),
    "concat": accept_legacy_names(arrays.concat, concat_dim="axis"),
    "count_nonzero": accept_legacy_names(
        math.count_nonzero, input_tensor="input", **_AXES
    ),
    "expand_dims": accept_legacy_names(vars(arrays)["expand_dims"], dim="axis"),
    "norm": accept_legacy_names(linalg.norm, keep_dims="keepdims"),
    "where_v2": indexing.where,
    "squeeze": accept_legacy_names(vars(arrays)["squeeze"], squeeze_dims="axis"),
}


@make_recordable
def div(x: Any, y: TensorLike, name: str | None = None) -> Any:
    """Divide x by y; the quotient of integers is rounded down."""
    x = ops.convert_to_tensor(x)
    integers = dtypes.is_integer(str(x.dtype))
    return ops.floor_divide(x, y) if integers else ops.divide(x, y)


@make_recordable
def select(condition: Any, x: Any, y: Any, name: str | None = None) -> Tensor:
    """Select x where a condition is true, else y; a vector selects whole rows.

    Raises:
        ShapeError: shapes differ. Only `where_v2` broadcasts.
    """
    condition, x, y = map(ops.convert_to_tensor, (condition, x, y))
    shape = tuple(x.shape)
    fits = tuple(condition.shape) in (shape, (), shape[:1])
    if shape != tuple(y.shape) or not fits:
        raise ShapeError(
            "where: expected x and y of equal shape, and a condition of the same "
            "shape, a scalar or a vector with one element for each row; received "
            f"{shape}, {tuple(y.shape)} and {tuple(condition.shape)}"
        )
    if condition.ndim == 1:
        condition = ops.reshape(condition, (-1, *[1] * (x.ndim - 1)))
    return ops.where(condition, x, y)


def where(
    condition: TensorLike,
    x: TensorLike | None = None,
    y: TensorLike | None = None,
    name: str | None = None,
) -> Any:
    """Select x where a condition is true, else y; without x and y, return true indices.

    Args:
        condition: booleans of the shape of x, or a vector that selects whole rows.
        x, y: of one shape.
        name: of the operation.
    """
    if x is None and y is None:
        return indexing.where(condition, name=name)
    return select(condition, x, y, name=name)


def _depth_to_space(
    input: TensorLike,
    block_size: int,
    name: str | None = None,
    data_format: str = "NHWC",
) -> Tensor:
    """Move blocks of channels to height and width."""
    return ops.depth_to_space(input, block_size, _FORMATS[data_format])


def _space_to_depth(
    input: TensorLike,
    block_size: int,
    name: str | None = None,
    data_format: str = "NHWC",
) -> Tensor:
    """Move blocks of height and width to channels."""
    return ops.space_to_depth(input, block_size, _FORMATS[data_format])


_FORMATS = {"NHWC": "channels_last", "NCHW": "channels_first"}
_while_loop = control.while_loop


def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    shape_invariants: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
    maximum_iterations: int | None = None,
    return_same_structure: bool = False,
) -> Any:
    """Apply `body` to the loop variables while `cond` holds.

    Args:
        cond, body: functions of the variables.
        loop_vars: a list or tuple of (structures of) tensors.
        shape_invariants: only None: shapes cannot change.
        parallel_iterations, swap_memory: have no effect.
        back_prop: False stops gradients at the result.
        name: of the operation.
        maximum_iterations: a bound on the number of iterations; gradients need it.
        return_same_structure: whether the result for a list with one variable is a
            list, or the variable.
    """
    finals = _while_loop(
        cond,
        body,
        loop_vars,
        shape_invariants,
        back_prop=back_prop,
        maximum_iterations=maximum_iterations,
        name=name,
    )
    single = isinstance(finals, (list, tuple)) and len(finals) == 1
    return finals[0] if single and not return_same_structure else finals


def Print(
    input_: TensorLike,
    data: Any,
    message: str = "",
    first_n: int | None = None,
    summarize: int = 3,
    name: str | None = None,
) -> Any:
    """Return `input_`; its computation prints `data` after the run.

    Args:
        input_: a tensor.
        data: a list of tensors to print.
        message: before the tensors.
        first_n: only None.
        summarize: the number of elements to show at each end.
        name: of the operation.
    """
    if first_n is not None:
        raise ArgumentError("Print: first_n must be None")
    shown = [message, *([x] for x in data)]
    with control_dependencies([print_op(*shown, sep="", summarize=summarize)]):
        return vars(arrays)["identity"](input_, name=name)


# --- tf.nn ----------------------------------------------------------------------------


@make_recordable
def _dropout(
    x: Any, keep: Any, noise_shape: Shape, seed: SeedLike | None = None
) -> Tensor:
    """Return x / keep with probability `keep`, else 0; `keep` can be a tensor."""
    x = ops.convert_to_tensor(x)
    shape = x.shape if noise_shape is None else tuple(noise_shape)
    samples = random_numbers.uniform(shape, seed=random.source(seed))
    keep = ops.cast(keep, x.dtype)
    return ops.where(
        samples < ops.cast(keep, samples.dtype), x / keep, ops.zeros_like(x)
    )


def dropout(
    x: TensorLike,
    keep_prob: Any = None,
    noise_shape: ShapeLike | None = None,
    seed: int | None = None,
    name: str | None = None,
    rate: Any = None,
) -> Any:
    """Keep elements with probability keep_prob and divide by it; else return 0.

    Args:
        x: of any shape.
        keep_prob: a number or a tensor; 1 - rate.
        noise_shape: shape of the random numbers; an extent of 1 shares them.
        seed: an integer, or None for the seed of the graph.
        name: of the operation.
        rate: 1 - keep_prob.
    """
    if (keep_prob is None) == (rate is None):
        raise ArgumentError("dropout: expected one of keep_prob and rate")
    keep = 1.0 - rate if keep_prob is None else keep_prob
    return _dropout(x, keep, noise_shape, seed=seed, name=name or "dropout")


_conv2d = accept_legacy_names(nn2.conv2d, filter="filters")


def conv2d(
    input: Any,
    filter: TensorLike | None = None,
    strides: IntOrInts | None = None,
    padding: Any = None,
    use_cudnn_on_gpu: bool = True,
    data_format: str = "NHWC",
    dilations: Sequence[int] = (1, 1, 1, 1),
    name: str | None = None,
    filters: TensorLike | None = None,
) -> Any:
    """Compute a convolution over two axes; use_cudnn_on_gpu has no effect.

    Args:
        input: shape (batch, height, width, channels), or by `data_format`.
        filter: shape (height, width, channels, channels of the result); or `filters`.
        strides, dilations: a number, or one for each axis of the input.
        padding: "SAME", "VALID" or pairs.
        data_format: "NHWC" or "NCHW".
        name: of the operation.
    """
    if (filter is None) == (filters is None):
        raise ArgumentError("conv2d: expected one of filter and filters")
    kernel = filters if filter is None else filter
    strides = 1 if strides is None else strides
    return _conv2d(
        input, kernel, strides, padding, data_format, list(dilations), name=name
    )


class _NN:
    """`tf.nn` of TensorFlow 2, with the differences of TensorFlow 1."""

    @staticmethod
    def in_top_k(
        predictions: TensorLike, targets: TensorLike, k: int, name: str | None = None
    ) -> Any:
        """Return whether targets are among the k highest predictions."""
        return vars(math)["in_top_k"](targets, predictions, k, name=name)

    @staticmethod
    def xw_plus_b(
        x: TensorLike, weights: TensorLike, biases: TensorLike, name: str | None = None
    ) -> Any:
        """Return x @ weights + biases."""
        return nn2.bias_add(linalg.matmul(x, weights), biases, name=name)

    conv1d = staticmethod(convolutions.conv1d)
    conv2d_transpose = staticmethod(convolutions.conv2d_transpose)
    convolution = staticmethod(convolutions.convolution)
    depthwise_conv2d = staticmethod(convolutions.depthwise_conv2d)
    l2_normalize = staticmethod(accept_legacy_names(math.l2_normalize, dim="axis"))
    pool = staticmethod(convolutions.pool)
    separable_conv2d = staticmethod(convolutions.separable_conv2d)
    avg_pool = staticmethod(accept_legacy_names(nn2.avg_pool, value="input"))
    conv2d = staticmethod(conv2d)
    dropout = staticmethod(dropout)
    log_softmax = staticmethod(accept_legacy_names(math.log_softmax, dim="axis"))
    max_pool = staticmethod(accept_legacy_names(nn2.max_pool, value="input"))
    moments = staticmethod(accept_legacy_names(nn2.moments, keep_dims="keepdims"))
    softmax = staticmethod(accept_legacy_names(math.softmax, dim="axis"))
    softmax_cross_entropy_with_logits = staticmethod(
        accept_legacy_names(nn2.softmax_cross_entropy_with_logits, dim="axis")
    )
    softmax_cross_entropy_with_logits_v2 = softmax_cross_entropy_with_logits

    def __getattr__(self, name: str) -> Any:
        return getattr(nn2, name)


nn: _NN = _NN()

FUNCTIONS |= {
    **{
        name: check
        for name, check in vars(debugging).items()
        if name.startswith("assert_")
    },
    "Print": Print,
    "depth_to_space": make_recordable(_depth_to_space),
    "div": div,
    "nn": nn,
    "space_to_depth": make_recordable(_space_to_depth),
    "where": where,
    "while_loop": while_loop,
}
