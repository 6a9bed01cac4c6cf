"""Names of TensorFlow that do not exist in toolkit, and their alternatives."""

from __future__ import annotations

from typing import Any, NoReturn

from toolkit.errors import UnsupportedError

# Name -> alternative.
INSTEAD = {
    "AggregationMethod": "gradients are always added in a fixed order",
    "estimator": "train with tf.keras.Model.fit",
    "feature_column": "use preprocessing layers or toolkit.utils.FeatureSpace",
    "graph_util": "use Function.inspect",
    "load_library": "register a primitive or a backend",
    "load_op_library": "register a primitive or a backend",
    "gradients": "use tf.GradientTape, or tf.compat.v1.gradients in a graph",
    "hessians": "use two tapes, or jacobian of a gradient",
    "lite": "use Model.export",
    "mlir": "use Function.inspect",
    "profiler": "use Function.inspect(...).trace, and Dataset.stats()",
    "quantization": "use toolkit.quantizers and Model.quantize",
    "queue": "use tf.data",
    "register_tensor_conversion_function": "define __array__ in the class",
    "raw_ops": "use the functions of tf and tf.math",
    "tpu": "use the processor or a GPU",
    "types": "use tf.Tensor",
    "xla": "use tf.function, which always compiles",
}


class Refusal:
    """Name that raises an error at its use, not at its lookup."""

    def __init__(self, name: str, alternative: str) -> None:
        self._message = f"tf.{name} is not supported: {alternative}"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UnsupportedError(self._message)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise UnsupportedError(self._message)

    def __instancecheck__(self, instance: Any) -> bool:
        return False  # there are no instances
