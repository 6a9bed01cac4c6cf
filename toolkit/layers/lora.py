"""Low-rank adaptation: a frozen weight plus a product of two small ones."""

from __future__ import annotations

from typing import Any

from toolkit import ops
from toolkit.core.naming import scopes
from toolkit.errors import ArgumentError, NotBuiltError
from toolkit.layers.layer import Layer
from toolkit.layers.weights import create_weight, positive


class LowRank(Layer):
    """Base of layers whose main weight W may be adapted: `W + alpha / rank * A @ B`.

    Reference: https://arxiv.org/abs/2106.09685
    """

    _adapted = "kernel"
    lora_enabled: bool = False
    lora_rank: Any
    lora_alpha: Any

    def __init__(
        self,
        *,
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if lora_rank is not None:
            positive(self, "lora_rank", lora_rank)
        self.lora_rank = lora_rank
        self.lora_alpha = lora_rank if lora_alpha is None else lora_alpha

    def _create_adapted(self, shape: Any) -> None:
        """Create the weight, and its adaptation if the constructor asked for one."""
        name = self._adapted
        setattr(self, f"_{name}", create_weight(self, name, shape))

    def _adapt_if_asked(self) -> None:
        if self.lora_rank and not self.lora_enabled:
            self.enable_lora(self.lora_rank, lora_alpha=self.lora_alpha)

    def _adapted_value(self) -> Any:
        """The weight, with its adaptation if there is one."""
        weight = self._main_weight()
        return weight + self._low_rank_update() if self.lora_enabled else weight

    def _main_weight(self) -> Any:
        """The weight without adaptation."""
        return getattr(self, f"_{self._adapted}")

    def _low_rank_update(self) -> Any:
        a, b = self._lora_pair()
        return (self.lora_alpha / self.lora_rank) * ops.matmul(a, b)

    def _lora_pair(self) -> tuple[Any, Any]:
        return tuple(getattr(self, f"lora_{self._adapted}_{side}") for side in "ab")  # type: ignore[return-value]

    def enable_lora(
        self,
        rank: int,
        lora_alpha: Any = None,
        a_initializer: Any = "he_uniform",
        b_initializer: Any = "zeros",
    ) -> None:
        """Freeze the main weight, and train a product of rank `rank` that is added.

        Args:
            rank: the extent between both factors.
            lora_alpha: the product is multiplied with `lora_alpha / rank`; rank if
                None.
            a_initializer: how the first factor, (..., rank), starts.
            b_initializer: how the second one, (rank, outputs), starts.

        Raises:
            ArgumentError: if the weight has a constraint, or lora is enabled already.
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
        weight = getattr(self, f"_{name}")
        shapes = (*weight.shape[:-1], rank), (rank, weight.shape[-1])
        locked, self._locked = self._locked, False
        outer = scopes.names
        if not self._building:  # beside the kernel, whatever model that is in
            scopes.names = tuple(weight.path.split("/")[:-2])
        for side, shape, initializer in zip(
            "ab", shapes, (a_initializer, b_initializer), strict=True
        ):
            factor = self.add_weight(
                shape,
                initializer,
                regularizer=getattr(self, f"{name}_regularizer"),
                name=f"lora_{name}_{side}",
            )
            setattr(self, f"lora_{name}_{side}", factor)
        scopes.names = outer
        weight.trainable = False
        self._locked = locked
        self.lora_enabled = True
        self.lora_rank = rank
        self.lora_alpha = rank if lora_alpha is None else lora_alpha

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if not self.lora_rank:
            return {k: v for k, v in config.items() if not k.startswith("lora_")}
        return config | {"lora_rank": self.lora_rank, "lora_alpha": self.lora_alpha}

    def save_own_variables(self, store: Any) -> None:
        """As for any layer; the adaptation is added to the weight it adapts."""
        if not self.lora_enabled:
            return super().save_own_variables(store)
        weight = getattr(self, f"_{self._adapted}")
        for i, variable in enumerate(self._kept_variables()):
            whole = weight + self._low_rank_update() if variable is weight else variable
            store[str(i)] = whole
        return None

    def _kept_variables(self) -> list[Any]:
        """What files hold: all but the adaptation."""
        pair = self._lora_pair()
        return [v for v in self._own_variables() if all(v is not x for x in pair)]

    def load_own_variables(self, store: Any) -> None:
        """As for any layer; the adaptation starts anew at zero."""
        if not self.lora_enabled:
            return super().load_own_variables(store)
        kept = self._kept_variables()
        if len(store.keys()) != len(kept):
            raise ArgumentError(
                f"{self.name}.load_own_variables: expected {len(kept)} variables; "
                f"received {len(store.keys())}"
            )
        for i, variable in enumerate(kept):
            variable.assign(store[str(i)])
        for factor in self._lora_pair():
            factor.assign(ops.zeros(factor.shape, dtype=factor.dtype))
        return None
