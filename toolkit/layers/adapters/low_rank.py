"""Low-rank adaptation (LoRA): a frozen weight plus a product of two small ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from toolkit import ops
from toolkit.core.naming import scopes
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable, assign_all
from toolkit.errors import ArgumentError, NotBuiltError, UnsupportedError
from toolkit.layers.adapters.weight import Weight
from toolkit.layers.layer import Layer
from toolkit.layers.weights import create_weight, positive
from toolkit.ops.index import lookup
from toolkit.type_aliases import (
    InitializerLike,
    RegularizedLayerOptions,
    Shape,
)


class LowRankWeight(Weight):
    """Weight `W + alpha / rank * A @ B`, in which W can be quantized.

    Args:
        layer: the layer of the weight.
        frozen: W.
    """

    def __init__(self, layer: Any, frozen: Weight) -> None:
        super().__init__(layer)
        self.frozen = frozen

    def factors(self) -> tuple[Variable, Variable]:
        """Return A and B."""
        a, b = (getattr(self.layer, f"lora_{self.name}_{side}") for side in "ab")
        return a, b

    def value(self) -> Any:
        a, b = self.factors()
        return self.frozen.value() + self._scale() * ops.matmul(a, b)

    def rounded(self, inputs: Any) -> Tensor:
        return self.frozen.rounded(inputs)

    def multiply(self, product: Callable[[Any, Any], Any], inputs: Any) -> Any:
        if self.frozen.mode == "float8":
            raise UnsupportedError(
                f"{self.layer.name}: a layer quantized as 'float8' cannot be adapted "
                "by lora"
            )
        return super().multiply(product, inputs)

    def rows(self, indices: Tensor) -> Any:
        a, b = self.factors()
        update = ops.matmul(lookup(a, indices), b)
        return self.frozen.rows(indices) + self._scale() * update

    def _scale(self) -> float:
        return self.layer.lora_alpha / self.layer.lora_rank


class LowRankLayer(Layer):
    """Base class of layers whose main weight supports LoRA.

    The attribute `_kernel` is the Variable; `kernel` is its value, including the
    adapter.

    Reference: https://arxiv.org/abs/2106.09685
    """

    _adapted = "kernel"
    _adapter: Weight | None = None
    lora_enabled: bool = False
    lora_rank: Any
    lora_alpha: Any

    def __init__(
        self,
        *,
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if lora_rank is not None:
            positive(self, "lora_rank", lora_rank)
        self.lora_rank = lora_rank
        self.lora_alpha = lora_rank if lora_alpha is None else lora_alpha

    def _create_adapted(self, shape: Shape) -> None:
        """Create the main weight."""
        name, initializer = self._adapted, self._main_initializer()
        weight = create_weight(self, name, shape, initializer=initializer)
        setattr(self, f"_{name}", weight)

    def _main_initializer(self) -> Any:
        """Return the initializer of the main weight."""
        return getattr(self, f"{self._adapted}_initializer")

    def _adapt_if_asked(self) -> None:
        """Adapt the weight if the constructor received a `lora_rank`."""
        if self.lora_rank and not self.lora_enabled:
            self.enable_lora(self.lora_rank, lora_alpha=self.lora_alpha)

    def _main_weight(self) -> Any:
        """Return the main weight, including the adapter."""
        if self._adapter is None:
            return getattr(self, f"_{self._adapted}")
        return self._adapter.value()

    def enable_lora(
        self,
        rank: int,
        lora_alpha: float | None = None,
        a_initializer: InitializerLike = "he_uniform",
        b_initializer: InitializerLike = "zeros",
    ) -> None:
        """Freeze the main weight, and train an added product of rank `rank`.

        Args:
            rank: the rank: the shared extent of both factors.
            lora_alpha: the numerator of the product's factor `lora_alpha / rank`; rank
                if None.
            a_initializer: initializer of the first factor, (..., rank).
            b_initializer: initializer of the second factor, (rank, outputs).

        Raises:
            ArgumentError: if the weight has a constraint, or LoRA is already enabled.
            NotBuiltError: if the layer has no weights yet.
        """
        name = self._adapted
        if getattr(self, f"{name}_constraint") is not None:
            raise ArgumentError(
                f"{self.name}.enable_lora: Lora is incompatible with {name} constraints"
                f"; leave out `{name}_constraint`"
            )
        if not (self.built or self._building):
            raise NotBuiltError(
                f"{self.name}: Cannot enable lora on a layer that isn't yet built"
            )
        if self.lora_enabled:
            raise ArgumentError(f"{self.name}: lora is already enabled")
        self._create_factors(rank, a_initializer, b_initializer)
        self.lora_enabled = True
        self.lora_rank = rank
        self.lora_alpha = rank if lora_alpha is None else lora_alpha
        self._adapter = LowRankWeight(self, self._adapter or Weight(self))

    def _create_factors(self, rank: int, *initializers: InitializerLike) -> None:
        """Create A and B, and freeze the weight."""
        name = self._adapted
        weight = getattr(self, f"_{name}")
        shape = (self._adapter or Weight(self)).shape
        shapes = (*shape[:-1], rank), (rank, shape[-1])
        locked, self._locked = self._locked, False
        outer = scopes.names
        # The names of A and B are in the kernel's scope, in any enclosing model.
        if not self._building:
            scopes.names = tuple(weight.path.split("/")[:-2])
        for side, shape, start in zip("ab", shapes, initializers, strict=True):
            factor = self.add_weight(
                shape,
                start,
                regularizer=getattr(self, f"{name}_regularizer"),
                name=f"lora_{name}_{side}",
            )
            setattr(self, f"lora_{name}_{side}", factor)
        scopes.names = outer
        weight.trainable = False
        self._locked = locked

    # --- configs and files ------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if not self.lora_rank:
            return {k: v for k, v in config.items() if not k.startswith("lora_")}
        return config | {"lora_rank": self.lora_rank, "lora_alpha": self.lora_alpha}

    def save_own_variables(self, store: Any) -> None:
        """Save the variables like any layer; merge the adaptation into the weight.

        Args:
            store: a mapping of arrays: "0", "1", ... in order.
        """
        if not isinstance(self._adapter, LowRankWeight):
            return super().save_own_variables(store)
        merged = self._merged()
        for i, variable in enumerate(self._kept_variables(self._adapter)):
            store[str(i)] = merged.get(variable, variable)
        return None

    def _merged(self) -> dict[Variable, Any]:
        """Return the weight's Variables with values that include the adaptation."""
        return {getattr(self, f"_{self._adapted}"): self._main_weight()}

    def _kept_variables(self, weight: LowRankWeight) -> list[Variable]:
        """Return the variables that files contain: all except the adaptation."""
        a, b = weight.factors()
        return [v for v in self._own_variables() if v is not a and v is not b]

    def load_own_variables(self, store: Any) -> None:
        """Load the variables like any layer; the adaptation restarts at zero.

        Only the second factor is zero: with two zero factors, both gradients are zero.

        Args:
            store: a mapping of arrays: "0", "1", ... in order.
        """
        if not isinstance(self._adapter, LowRankWeight):
            return super().load_own_variables(store)
        variables = self._kept_variables(self._adapter)
        if len(store.keys()) != len(variables):
            raise ArgumentError(
                f"{self.name}.load_own_variables: expected {len(variables)} variables; "
                f"received {len(store.keys())}"
            )
        assign_all((variable, store[str(i)]) for i, variable in enumerate(variables))
        _, b = self._adapter.factors()
        b.assign(ops.zeros(b.shape, dtype=b.dtype))
        return None
