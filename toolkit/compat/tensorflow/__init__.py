"""TensorFlow's API on toolkit: `import toolkit.compat.tensorflow as tf`.

Each name calls a function of toolkit with TensorFlow's arguments and result dtypes. A
name that does not exist raises an error with the alternative. Names are imported on
first use. Tensors and Variables have TensorFlow's attributes in code that uses these
names; toolkit's classes do not change, see `tensor_classes`.

The argument `name` of a function has no effect: graphs do not use it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from toolkit.compat.tensorflow.module_aliases import install
from toolkit.compat.tensorflow.unsupported_names import INSTEAD, Refusal

# File name -> its public names.
_FILES = {
    "arrays": "bitcast broadcast_dynamic_shape broadcast_static_shape "
    "broadcast_to cast complex concat constant "
    "convert_to_tensor "
    "ensure_shape expand_dims eye fill identity is_tensor linspace meshgrid one_hot "
    "ones ones_like range rank repeat reshape reverse roll saturate_cast shape "
    "size split squeeze stack stop_gradient tile timestamp transpose unstack zeros "
    "zeros_like",
    "control": "case cond control_dependencies foldl foldr group map_fn no_op "
    "numpy_function py_function recompute_grad scan switch_case vectorized_map "
    "while_loop",
    "slicing": "boolean_mask pad slice strided_slice",
    "debugging": "Assert assert_equal assert_greater assert_less assert_rank",
    "data": "TensorSpec",
    "functions": "function",
    "indexing": "IndexedSlices argsort dynamic_partition dynamic_stitch gather gather_nd "
    "histogram_fixed_width reverse_sequence scatter_nd searchsorted sequence_mask sort "
    "tensor_scatter_nd_add tensor_scatter_nd_max tensor_scatter_nd_min "
    "tensor_scatter_nd_sub tensor_scatter_nd_update unique unique_with_counts "
    "unravel_index where",
    "linalg": "eig eigvals einsum matmul norm tensordot",
    "math": "abs acos acosh add add_n argmax argmin asin asinh atan atan2 atanh "
    "clip_by_global_norm clip_by_norm clip_by_value cos cosh cumsum divide equal exp "
    "floor greater greater_equal less less_equal logical_and logical_not logical_or "
    "maximum minimum multiply negative not_equal pow reduce_all reduce_any "
    "reduce_logsumexp reduce_max reduce_mean reduce_min reduce_prod reduce_sum round "
    "scalar_mul sigmoid sign sin sinh sqrt square subtract tan tanh truediv",
    "modes": "executing_eagerly",
    "modules": "Module",
    "namespaces": "UnconnectedGradients VariableAggregation VariableSynchronization "
    "autodiff bitwise constant_initializer dtypes errors get_logger get_static_value "
    "nest ones_initializer "
    "random_normal_initializer random_uniform_initializer train version "
    "zeros_initializer",
    "printing": "print",
    "elements": "RaggedTensorSpec",
    "ragged": "RaggedTensor",
    "sparse_tensor": "SparseTensor SparseTensorSpec",
    "tensor_array": "TensorArray",
    "types": "DType TensorShape as_dtype bfloat16 complex64 complex128 double float16 "
    "float32 float64 half int8 int16 int32 int64 string uint8 uint16 uint32 uint64",
    "variables": "Variable",
}
_WHERE = {name: file for file, names in _FILES.items() for name in names.split()}
_MODULES = (
    *("audio", "autograph", "compat", "config", "data", "debugging", "distribute"),
    *("experimental", "image", "io", "keras", "linalg"),
    *("lookup", "math", "nn", "ragged", "random", "saved_model", "sets", "signal"),
    *("sparse", "strings", "summary", "test"),
)
_CORE = {
    "GradientTape": "toolkit.compat.tensorflow.tapes",
    "Tensor": "toolkit.compat.tensorflow.tensor_classes",
    "custom_gradient": "toolkit.compat.tensorflow.tapes",
    "device": "toolkit.compat.tensorflow.scopes",
    "init_scope": "toolkit.compat.tensorflow.scopes",
    "Graph": "toolkit.compat.tensorflow.v1",
    "Operation": "toolkit.compat.tensorflow.v1",
    "as_string": "toolkit.compat.tensorflow.strings",
    "name_scope": "toolkit.compat.tensorflow.scopes",
}
# Legacy names of modules of tf.keras.
_OF_KERAS = ("initializers", "losses", "metrics", "optimizers")

__all__ = [
    "__version__",
    "bool",
    "newaxis",
    *(*_WHERE, *_MODULES, *_CORE, *_OF_KERAS, *INSTEAD),
]


install()


def __getattr__(name: str) -> Any:
    globals()[name] = value = _import_name(name)
    return value


def _import_name(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name in _WHERE:
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    if name in _CORE:
        return getattr(import_module(_CORE[name]), name)
    if name == "bool":  # a file that used the name could not call the built-in function
        return import_module(f"{__name__}.types").boolean
    if name == "__version__":
        return import_module(f"{__name__}.namespaces").VERSION
    if name == "newaxis":
        return None
    if name in _OF_KERAS:
        return getattr(import_module(f"{__name__}.keras"), name)
    if name in INSTEAD:
        return Refusal(name, INSTEAD[name])
    raise AttributeError(f"module 'tf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
