"""Pipeline: a sequence of layers."""

from __future__ import annotations

from typing import Any

from toolkit import tree
from toolkit.core.masks import mask_of
from toolkit.errors import ArgumentError
from toolkit.layers.layer import Layer
from toolkit.serialization import deserialize_keras_object, serialize_keras_object


class Pipeline(Layer):
    """Sequence of layers for data of any structure.

    Args:
        layers: the layers, in order.
        name: the name; generated from the class name if None.

    Call arguments:
        training: passed to the layers that accept it.

    Example:
        >>> import toolkit
        >>> scale = toolkit.layers.Rescaling(0.5)
        >>> toolkit.layers.Pipeline([scale, scale])(toolkit.ops.ones((2,))).tolist()
        [0.25, 0.25]
    """

    _convert_input_args = _casts_inputs = False

    def __init__(self, layers: list[Any], name: str | None = None) -> None:
        super().__init__(name=name)
        self._pipeline_layers = layers
        self._allow_non_tensor_positional_args = True

    @property
    def layers(self) -> list[Any]:
        """Return the layers in order."""
        return self._pipeline_layers

    def call(self, inputs: Any, training: bool = True, mask: Any = None) -> Any:
        for layer in self._pipeline_layers:
            arguments = {"mask": mask} if layer._info.takes_mask else {}
            if layer._info.takes_training:
                arguments["training"] = training
            inputs = layer(inputs, **arguments)
            mask = tree.map_structure(mask_of, inputs)
        return inputs

    def get_config(self) -> dict[str, Any]:
        layers = [serialize_keras_object(layer) for layer in self._pipeline_layers]
        return {"layers": layers, "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Pipeline:
        layers = config.get("layers")
        if not isinstance(layers, (list, tuple)):
            raise ArgumentError(
                "Pipeline.from_config: the config must contain a `layers` key with a "
                f"list of serialized layers; received {layers!r}"
            )
        return cls(
            **{**config, "layers": [deserialize_keras_object(x) for x in layers]}
        )
