"""Sequential: a stack of layers."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from toolkit import dtypes, settings, tree
from toolkit.console.tracebacks import without_frames
from toolkit.core.keras_tensor import KerasTensor, standardize_shape
from toolkit.errors import (
    ArgumentError,
    NotBuiltError,
    OutOfRangeError,
    ShapeError,
    ToolkitError,
    TraceError,
    describe_value,
)
from toolkit.layers import InputLayer
from toolkit.layers.call import Arguments, context, is_shape
from toolkit.layers.layer import Layer
from toolkit.layers.rollback import rollback_on_error
from toolkit.layers.tracking import no_tracking, unique
from toolkit.models.functional.model import Functional
from toolkit.models.model import Model
from toolkit.ops.symbolic import without_masks
from toolkit.serialization import deserialize_keras_object, serialize_keras_object
from toolkit.type_aliases import Shape

_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD


class Sequential(Model):
    """Stack of layers: each layer receives the output of the previous one.

    With an `Input` first, weights are created when layers are added; otherwise on the
    first call, or by `build(input_shape)`.

    Args:
        layers: the layers, first to last.
        trainable: whether optimizers update the weights.
        name: the name; generated if None.

    Example:
        >>> import toolkit
        >>> model = toolkit.Sequential(
        ...     [toolkit.Input((4,)), toolkit.layers.Dense(3), toolkit.layers.Dense(2)]
        ... )
        >>> model.output_shape, model.count_params()
        ((None, 2), 23)
    """

    _describes_parts = True

    _casts_inputs = False  # each layer casts

    @without_frames
    def __init__(
        self,
        layers: Sequence[Any] | None = None,
        trainable: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(trainable=trainable, name=name)
        self._set_functional(None)
        self._layers: list[Any] = []
        self._computes_mask = type(self).compute_mask is not Sequential.compute_mask
        self._keeps_masks = not self._computes_mask
        self.supports_masking = True
        for layer in layers or ():
            self.add(layer, rebuild=False)
        if layers:
            self._rebuild()

    def _set_functional(self, functional: Functional | None) -> None:
        # Its layers belong to this model: tracking must not find them twice.
        with no_tracking():
            self._functional = functional
        self.built: bool = functional is not None

    @without_frames
    def add(self, layer: Any, rebuild: bool = True) -> None:
        """Append a layer, or an `Input`.

        Args:
            layer: a Layer, or the symbolic tensor that `Input` returned.
            rebuild: whether to build the model immediately if its input shape is known.
        """
        with rollback_on_error([self]):
            self._add(layer, rebuild)

    def _add(self, layer: Layer, rebuild: bool) -> None:
        if not self._layers and getattr(layer, "_input_shape_arg", None) is not None:
            self._add(InputLayer(shape=layer._input_shape_arg), rebuild=False)
        if isinstance(layer, KerasTensor) and layer._keras_history is not None:
            layer = layer._keras_history.operation
        if not isinstance(layer, Layer):
            raise ArgumentError(
                f"Sequential {self.name!r}: expected a layer; "
                f"received {describe_value(layer)}"
            )
        if any(x is not layer and x.name == layer.name for x in self._layers):
            raise ArgumentError(
                f"Sequential {self.name!r}: expected unique layer names; received "
                f"another layer named {layer.name!r}"
            )
        if isinstance(layer, InputLayer) and self._layers:
            raise ArgumentError(
                f"Sequential {self.name!r}: an Input must be the first layer; the "
                f"model already has {len(self._layers)} layers"
            )
        self._layers.append(layer)
        self._set_functional(None)
        if rebuild:
            self._rebuild()

    def pop(self, rebuild: bool = True) -> Layer:
        """Remove the last layer and return it.

        Args:
            rebuild: whether to build the model immediately if its input shape is known.

        Returns:
            The removed layer.
        """
        if not self.layers:
            raise OutOfRangeError(f"Sequential {self.name!r}: there is no layer to pop")
        with rollback_on_error([self]):
            layer: Layer = self._layers.pop()
            self._set_functional(None)
            if rebuild:
                self._rebuild()
        return layer

    def _rebuild(self) -> None:
        if len(self._layers) < 2:
            return
        first = self._layers[0]
        if isinstance(first, InputLayer):
            self.build(first.batch_shape)
        elif isinstance(first, Functional) or getattr(first, "_functional", None):
            self.build(first.input_shape)

    def build(self, input_shape: Any = None) -> None:
        """Create the weights for inputs of this shape (None: an unknown extent).

        Args:
            input_shape: the shape with the batch.
        """
        try:
            shape = standardize_shape(input_shape)
        except (ShapeError, TypeError, ValueError):
            return  # several inputs: a call builds the layers
        if not self.layers:
            raise ArgumentError(
                f"Sequential {self.name!r}: there are no layers to build; call `add`"
            )
        inner = self._flatten_layers(include_self=False)
        with rollback_on_error([self, *(x for x in inner if not x.built)]):
            self._chain_layers(shape)

    def _build_for(self, arguments: Arguments) -> None:
        """Build for the arguments of the first call, with symbols if that is possible.

        If not, the call of each layer builds it.
        """
        if not context.is_eager:
            try:
                super()._build_for(arguments)
                return
            except TraceError:  # a layer needs the values of its inputs
                pass
        self._set_path()
        self.__dict__["_build_shapes"] = dict(list(arguments.shapes().items())[:1])

    def build_from_config(self, config: dict[str, Any] | None) -> None:
        """Build the model with the result of `get_build_config`.

        Layers that need the values of their inputs are built by the first call.

        Args:
            config: the result of `get_build_config`.
        """
        shape: Any = (config or {}).get("input_shape")
        if is_shape(shape):  # for batches of any size
            config = {"input_shape": (None, *shape[1:])}
        with suppress(TraceError):
            super().build_from_config(config)

    def _build_for_batches(self, x: Any) -> None:
        shape = getattr(x, "shape", None)
        if not self.built and shape is not None and self.layers:
            # layers can need the batch size, or raise with a reason
            with suppress(Exception):
                self.build((None, *shape[1:]))

    def _chain_layers(self, shape: Shape) -> None:
        """Call the layers in order, from an Input on."""
        if not isinstance(self._layers[0], InputLayer):
            dtype = _dtype_in_front_of(self._layers[0])
            self._layers = [InputLayer(batch_shape=shape, dtype=dtype), *self._layers]
        elif tuple(self._layers[0].batch_shape) != shape:
            raise ShapeError(
                f"Sequential {self.name!r}: expected the input shape "
                f"{tuple(self._layers[0].batch_shape)} of its Input; received {shape}"
            )
        inputs = outputs = self._layers[0].output
        for layer in self._layers[1:]:
            try:
                outputs = layer(outputs)
            except NotImplementedError as error:
                if isinstance(error, ToolkitError):
                    raise
                return  # shape inference is impossible: built on the first call
            except TypeError:
                self._check_takes_one(layer)
                raise
        functional = Functional(inputs, outputs, name=self.name)
        functional._kind = "Sequential"
        # The layers can accept images of another size; they check it themselves.
        functional._is_strict = False
        functional._keeps_integers = not all(x._casts_inputs for x in self.layers[:1])
        self._set_functional(functional)

    def _check_takes_one(self, layer: Layer) -> None:
        """Raise unless a layer accepts one output of the previous layer."""
        parameters = inspect.signature(layer.call).parameters.values()
        positional = [
            p for p in parameters if p.kind in (p.POSITIONAL_ONLY, _POSITIONAL)
        ]
        required = [p.name for p in positional if p.default is p.empty]
        if not positional or len(required) > 1:
            description = ", ".join(required) or "no positional arguments"
            raise ArgumentError(
                f"Sequential {self.name!r}: Layers added to a Sequential model must "
                "have a single required positional argument, the input tensor; "
                f"{type(layer).__name__} has {description}"
            )

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """Apply the layers in order.

        Args:
            inputs: tensors in the structure of the model's inputs.
            training: whether to run in training mode; None: the mode of the context.
            mask: masks of the inputs, or None.

        Returns:
            The outputs, in the structure of the model's outputs.
        """
        functional = self._functional
        if functional is not None:
            try:
                return functional.call(inputs, training=training, mask=mask)
            except ShapeError as error:
                functional._explain(inputs, error)
                raise
        outputs = inputs
        for layer in self.layers:
            arguments: dict[str, Any] = {}
            if layer._info.takes_mask and mask is not None:
                arguments["mask"] = mask
            if layer._info.takes_training and training is not None:
                arguments["training"] = training
            outputs = layer(outputs, **arguments)
            mask = None  # the tensors have their masks from now on
        return outputs

    def _output_symbols(self, batch_size: int) -> object:
        if self._functional is None or type(self).call is not Sequential.call:
            return None
        return self._functional._output_symbols(batch_size)

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        """Return None: the sublayers attach masks to the outputs.

        Args:
            inputs: the inputs of the call.
            previous_mask: the masks of the inputs.
        """
        return None

    def compute_output_spec(
        self, inputs: Any, training: bool | None = None, mask: Any = None
    ) -> Any:
        """Return the symbolic outputs of a call with these symbols.

        Args:
            inputs: symbolic tensors in the structure of the model's inputs.
            training: whether to run in training mode; None: the mode of the context.
            mask: masks of the inputs, or None.
        """
        if self._functional is not None:
            return self._functional.compute_output_spec(inputs, training, mask)
        arguments = {"training": training, "mask": mask}
        return without_masks(super().compute_output_spec(inputs, **arguments))

    def compute_output_shape(self, input_shape: Shape) -> Any:
        """Return the shape of the output for inputs of this shape.

        Args:
            input_shape: the shape, or shapes, of the inputs; None for unknown extents.
        """
        if self._functional is not None:
            return self._functional.compute_output_shape(input_shape)
        for layer in self.layers:
            input_shape = layer.compute_output_shape(input_shape)
        return input_shape

    def _sublayers(self) -> list[Any]:
        return unique([*self._layers, *super()._sublayers()])

    @property
    def layers(self) -> list[Layer]:
        """Return the layers without the `Input`."""
        skip = bool(self._layers) and isinstance(self._layers[0], InputLayer)
        return self._layers[int(skip) :]

    @layers.setter
    def layers(self, value: Any) -> None:
        raise AttributeError(
            "`Sequential.layers` attribute is reserved and cannot be set; use `add` "
            "and `pop`"
        )

    def _graph(self, description: str) -> Functional:
        if self._functional is None and self.built:
            self._chain_built_layers()
        if self._functional is None:
            raise NotBuiltError(
                f"Sequential {self.name!r} has no {description} yet; "
                "start with an Input, build it or call it first"
            )
        return self._functional

    def _chain_built_layers(self) -> None:
        """Create the graph of a model that a call without symbols has built."""
        shape = self._first_shape()
        if shape is None:
            return
        try:
            with rollback_on_error([self]):
                self._chain_layers(shape)
        except TraceError as error:
            message = f"Sequential {self.name!r} has no graph: {error}"
            raise NotBuiltError(message) from None

    def _first_shape(self) -> tuple[int | None, ...] | None:
        """Return the shape of the input of the first call, for batches of any size.

        None: there are several inputs, or no call.
        """
        shape: Any = next(iter((self._build_shapes or {}).values()), None)
        return (None, *shape[1:]) if is_shape(shape) else None

    @property
    def inputs(self) -> list[KerasTensor]:
        """Return the symbol of the input, in a list."""
        return self._graph("inputs").inputs

    @property
    def outputs(self) -> list[KerasTensor]:
        """Return the symbol of the output, in a list."""
        return self._graph("outputs").outputs

    @property
    def input(self) -> Any:
        """Return the symbol of the input."""
        return self._graph("input").input

    @property
    def output(self) -> Any:
        """Return the symbol of the output."""
        return self._graph("output").output

    @property
    def input_shape(self) -> Any:
        """Return the shape of the input."""
        return self._graph("input_shape").input_shape

    @property
    def output_shape(self) -> Any:
        """Return the shape of the output."""
        return self._graph("output_shape").output_shape

    def get_config(self) -> dict[str, Any]:
        """Return the configs of the layers, in Keras 3's format."""
        config = {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": serialize_keras_object(self.dtype_policy),
            "layers": [serialize_keras_object(layer) for layer in self._layers],
        }
        if self._functional is not None:
            config["build_input_shape"] = tuple(self._layers[0].batch_shape)
        elif self.built and (shape := self._first_shape()) is not None:
            config["build_input_shape"] = shape
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """Build a model from the result of `get_config`.

        Args:
            config: the result of `get_config`.
            custom_objects: a dict from names to classes or functions that the config
                contains.

        Returns:
            The model, with new weights.
        """
        if "layers" not in config or "name" not in config:
            raise ArgumentError(
                "A Sequential model configuration must be a dictionary containing the "
                f"'name' and 'layers' keys; received {sorted(config)}"
            )
        options: dict[str, Any] = {"name": config["name"]}
        if config.get("trainable") is False:  # few user classes accept it
            options["trainable"] = False
        model = cls(**options)
        if config.get("dtype") is not None:
            dtype = config["dtype"]
            model.dtype_policy = (
                deserialize_keras_object(dtype) if isinstance(dtype, dict) else dtype
            )
        added: dict[Any, Any] = {}
        for layer in config["layers"]:
            if not isinstance(layer, dict) or "config" not in layer:
                raise ArgumentError(
                    "Sequential.from_config: a layer is malformed. Expected a "
                    f"dictionary containing a 'config' key; received {layer!r}"
                )
            inner = layer["config"]
            name = inner.get("name") if isinstance(inner, dict) else None
            first, repeated = added.get(name, (None, None))
            # equal entries are one layer, added twice
            if first != layer or name is None:
                repeated = deserialize_keras_object(
                    layer, custom_objects=custom_objects
                )
            added[name] = layer, repeated
            model.add(repeated, rebuild=False)
        model._rebuild()
        shape = config.get("build_input_shape")
        if model._functional is None and shape is not None:
            if all(n is None or isinstance(n, int) for n in tree.flatten(shape)):
                with suppress(TraceError):  # a layer needs values: the call builds it
                    model.build(tuple(shape))
        return model


def _dtype_in_front_of(layer: Layer) -> str:
    """Return the dtype of an implicit Input: the dtype to which the layer casts.

    For a layer without a cast, it has at least the precision of an Input's default
    dtype.
    """
    dtype: str = layer.compute_dtype
    is_narrow = dtypes.is_float(dtype) and dtypes.itemsize(dtype) < 4
    return settings.floatx() if is_narrow and layer._input_dtype is None else dtype
