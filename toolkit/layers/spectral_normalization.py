"""SpectralNormalization: a wrapper that keeps a weight's spectral norm at 1."""

from __future__ import annotations

from typing import Any, Unpack

from toolkit import initializers, ops
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError
from toolkit.layers.input_spec import InputSpec
from toolkit.layers.weights import positive
from toolkit.layers.wrappers import Wrapper
from toolkit.type_aliases import RegularizedLayerOptions


class SpectralNormalization(Wrapper):
    """Wrapper that divides a kernel by its largest singular value in training.

    Power iterations estimate that value; they continue from step to step.

    Args:
        layer: a layer that has a `kernel` or `embeddings`.
        power_iterations: the number of power iterations per step.

    Call arguments:
        training: whether to normalize the kernel before the call.

    Output shape: the output shape of the layer.

    Example:
        >>> import toolkit
        >>> dense = toolkit.layers.Dense(4)
        >>> layer = toolkit.layers.SpectralNormalization(dense)
        >>> layer(toolkit.ops.ones((2, 3)), training=True).shape
        (2, 4)

    Reference: https://arxiv.org/abs/1802.05957
    """

    def __init__(
        self,
        layer: Any,
        power_iterations: int = 1,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(layer, **kwargs)
        self.power_iterations: int = positive(
            self, "power_iterations", power_iterations
        )

    def build(self, input_shape: Any = None) -> None:
        super().build(input_shape)
        self.input_spec = InputSpec(min_ndim=1, axes={-1: input_shape[-1]})
        # Use the Variable directly, without the term of an adapter.
        for name in ("_kernel", "kernel", "_embeddings"):
            if hasattr(self.layer, name):
                self.kernel: Any = getattr(self.layer, name)
                break
        else:
            raise ArgumentError(
                f"SpectralNormalization: {type(self.layer).__name__} object has no "
                "attribute 'kernel' nor 'embeddings'"
            )
        self.vector_u: Variable = self.add_weight(
            (1, self.kernel.shape[-1]),
            initializers.TruncatedNormal(stddev=0.02),
            dtype=self.variable_dtype,
            trainable=False,
            name="vector_u",
        )

    def call(self, inputs: Any, training: bool = False) -> Tensor:
        if training:
            vector, kernel = self.normalized_weights()
            # A zero kernel has no direction, and stays unchanged.
            empty = ops.all(ops.equal(self.kernel, 0))
            self.vector_u.assign(ops.where(empty, self.vector_u, vector))
            self.kernel.assign(ops.where(empty, self.kernel, kernel))
        return ops.cast(self.layer(inputs), inputs.dtype)

    def normalized_weights(self) -> tuple[Any, Any]:
        """Return the new singular vector, and the kernel over its singular value."""
        kernel = ops.convert_to_tensor(self.kernel.value)
        weights = ops.reshape(kernel, (-1, kernel.shape[-1]))
        u = ops.convert_to_tensor(self.vector_u.value)
        for _ in range(self.power_iterations):
            v = ops.normalize(ops.matmul(u, ops.transpose(weights)), axis=-1)
            u = ops.normalize(ops.matmul(v, weights), axis=-1)
        u, v = ops.stop_gradient(u), ops.stop_gradient(v)
        sigma = ops.matmul(ops.matmul(v, weights), ops.transpose(u))
        return u, ops.where(sigma == 0, kernel, kernel / sigma[0, 0])
