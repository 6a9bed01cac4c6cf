"""What `compile` was given, as a config and back."""

from __future__ import annotations

from typing import Any

from toolkit.console.frames import warn
from toolkit.errors import ToolkitError
from toolkit.serialization import serialize_keras_object
from toolkit.serialization.reading import deserialize_argument


class CompileConfigured:
    """The part of a Trainer that describes how it was compiled."""

    compiled = False
    _compiled_with: dict[str, Any] | None = None
    loss: Any = None
    compile: Any

    def _loss_attribute(self, loss: Any) -> Any:
        """Return the attribute `loss` for a `compile` with this loss.

        Without a loss, a value that no `compile` has set belongs to the subclass.
        """
        earlier = (self._compiled_with or {}).get("loss")
        return self.loss if loss is None and self.loss is not earlier else loss

    def get_compile_config(self) -> dict[str, Any]:
        """The arguments of `compile` as plain values; empty before it."""
        if not self.compiled or self._compiled_with is None:
            return {}
        return serialize_keras_object(self._compiled_with)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile with the arguments that `get_compile_config` described.

        A class with a `compile` of its own must define this too, or is left as it is.
        """
        if not _is_ours(type(self).compile):
            warn(
                f"{type(self).__name__} has a `compile` of its own: define "
                "`get_compile_config` and `compile_from_config` to have models "
                "compiled again when they are loaded, or compile them then"
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


def _is_ours(method: Any) -> bool:
    return str(method.__module__).startswith("toolkit.")
