"""Export of Keras's models by the exporters of toolkit."""

from __future__ import annotations

from typing import Any


class ToolkitExportArchive:
    """Refuse the format SavedModel, which only TensorFlow writes."""

    def track(self, resource: Any) -> None:
        """Refuse to track a resource."""
        raise _refusal()

    def add_endpoint(self, *args: Any, **kwargs: Any) -> None:
        """Refuse to add an endpoint."""
        raise _refusal()


def _refusal() -> NotImplementedError:
    return NotImplementedError(
        "The format SavedModel needs TensorFlow. With the toolkit backend use "
        '`model.export(path, format="onnx")`, or save the model as a `.keras` file and '
        "export it with Keras on TensorFlow"
    )
