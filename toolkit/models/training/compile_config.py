"""Serialization of the arguments of `compile`."""

from __future__ import annotations

from typing import Any

from toolkit.console.frames import warn
from toolkit.errors import ToolkitError
from toolkit.serialization import serialize_keras_object
from toolkit.serialization.reading import deserialize_argument


class CompileConfigured:
    """Part of a Trainer that serializes its compile arguments."""

    compiled = False
    _compiled_with: dict[str, Any] | None = None
    loss: Any = None
    compile: Any

    def _loss_attribute(self, loss: Any) -> Any:
        """Return the attribute `loss` after a `compile` with this loss.

        Without a loss, an attribute that `compile` did not set belongs to the subclass.
        """
        previous_loss = (self._compiled_with or {}).get("loss")
        return self.loss if loss is None and self.loss is not previous_loss else loss

    def get_compile_config(self) -> dict[str, Any]:
        """Return the arguments of `compile` as plain values; empty before `compile`."""
        if not self.compiled or self._compiled_with is None:
            return {}
        return serialize_keras_object(self._compiled_with)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile with the result of `get_compile_config`.

        A class that overrides `compile` must define this, too; otherwise it does
        nothing.

        Args:
            config: the arguments of `compile` as plain values.
        """
        if not _is_toolkit_method(type(self).compile):
            warn(
                f"{type(self).__name__} overrides `compile`. Define "
                "`get_compile_config` and `compile_from_config`, so that loaded "
                "models are compiled. Otherwise compile each model after the load"
            )
            return
        try:
            self.compile(**deserialize_argument(config))
        except ToolkitError as error:
            error.args = (f"compile_from_config: {error}",)
            raise
        optimizer = getattr(self, "optimizer", None)
        if optimizer is not None and getattr(self, "built", False):
            optimizer.build(self.trainable_variables)  # type: ignore[attr-defined]


def _is_toolkit_method(method: Any) -> bool:
    return str(method.__module__).startswith("toolkit.")
