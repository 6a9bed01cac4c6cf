"""Layers that wrap another layer: Wrapper, TimeDistributed, Bidirectional."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Unpack

from toolkit import ops, serialization, tree
from toolkit.core.masks import mask_of, set_mask
from toolkit.errors import ArgumentError, ArgumentTypeError, ShapeError
from toolkit.layers.call import context
from toolkit.layers.config import WithParts
from toolkit.layers.layer import Layer
from toolkit.layers.masks import unmasked
from toolkit.layers.weights import choice
from toolkit.type_aliases import RegularizedLayerOptions, TensorLike


class Wrapper(WithParts, Layer):
    """Base class of layers that wrap and build another one.

    Args:
        layer: the wrapped layer.

    Example:
        >>> import toolkit
        >>> class Doubled(toolkit.layers.Wrapper):
        ...     def call(self, inputs):
        ...         return 2 * self.layer(inputs)
        ...
        >>> Doubled(toolkit.layers.ReLU())(toolkit.ops.array([-1.0, 3.0])).tolist()
        [0.0, 6.0]
    """

    def __init__(self, layer: Any, **kwargs: Unpack[RegularizedLayerOptions]) -> None:
        super().__init__(**kwargs)
        if not isinstance(layer, Layer):
            raise ArgumentError(
                f"{type(self).__name__}: expected a layer; received {layer!r}"
            )
        self.layer = layer

    def build(self, input_shape: Any = None) -> None:
        if not self.layer.built:
            self.layer.build(input_shape)


class TimeDistributed(Wrapper):
    """Wrapper that applies one layer to every step of sequences.

    All steps are one large batch for the layer, with two exceptions that loop over the
    steps. In training, if a call changes the layer's state (BatchNormalization updates
    its statistics in each step). And if a call adds losses, which then include all
    steps.

    Args:
        layer: the applied layer.

    Call arguments:
        mask: (batch, steps), or (batch, steps, ...) with the axes of each step. A layer
            with a mask argument receives the part of each step. The outputs have the
            layer's mask, or else (batch, steps): whether the mask of a step is True
            anywhere.
        training: passed to the layer.

    Input shape: (batch, steps, ...).
    Output shape: (batch, steps, ...), the layer's output shape per step, for each
    output.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.TimeDistributed(toolkit.layers.Flatten())
        >>> layer(toolkit.ops.ones((2, 10, 4, 4))).shape
        (2, 10, 16)
    """

    _adds_losses = False  # whether a call of the layer has added losses

    def __init__(self, layer: Any, **kwargs: Unpack[RegularizedLayerOptions]) -> None:
        super().__init__(layer, **kwargs)
        self._pass_masks_only()

    def build(self, input_shape: Any = ()) -> None:
        if len(input_shape) < 3:
            raise ShapeError(
                "TimeDistributed: expected inputs (batch, steps, ...); received shape "
                f"{tuple(input_shape)}; a recurrent layer before this one needs "
                "return_sequences=True"
            )
        if not self.layer.built:
            self.layer.build((input_shape[0], *input_shape[2:]))

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        steps = inputs.shape[:2]
        if mask is not None and tuple(mask.shape[:2]) != tuple(steps):
            raise ShapeError(
                f"TimeDistributed: expected a mask for {tuple(steps)} steps; "
                f"received shape {tuple(mask.shape)}"
            )
        moves = training and _moves_state(self.layer)
        if (moves or self._adds_losses) and not context.symbolic:
            return self._one_by_one(inputs, training, mask)
        loss_counts = {
            layer: len(layer._losses) for layer in self.layer._flatten_layers()
        }
        joined = None if mask is None else _joined(mask)
        output = self._step(_joined(inputs), training, joined)
        if any(len(layer._losses) > count for layer, count in loss_counts.items()):
            for layer, count in loss_counts.items():
                del layer._losses[count:]
            self._adds_losses = True
            return self._one_by_one(inputs, training, mask)
        return tree.map_structure(
            lambda x: _with_mask(partial(_split, steps), x, mask_of(x)), output
        )

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """Return the steps in which the mask of the inputs is True anywhere.

        It is the mask of outputs without a mask of the layer.

        Args:
            inputs: the inputs of the call.
            mask: the mask of the inputs, or None.
        """
        if mask is None or mask.ndim == 2:
            return mask
        return ops.any(mask, axis=tuple(range(2, mask.ndim)))

    def _one_by_one(self, inputs: Any, training: bool | None, mask: Any) -> Any:
        """Call the layer for each step."""
        outputs = [
            self._step(inputs[:, i], training, None if mask is None else mask[:, i])
            for i in range(inputs.shape[1])
        ]
        return tree.map_structure(
            lambda *xs: _with_mask(partial(ops.stack, axis=1), xs, _all_masks(xs)),
            *outputs,
        )

    def _step(self, inputs: Any, training: bool | None, mask: Any) -> Any:
        """Call the layer on (rows, ...) with the mask of these rows."""
        if mask is not None and not self._fits(mask, inputs):
            mask = None
        if self.layer._info.takes_mask:
            return self.layer(inputs, training=training, mask=mask)
        if mask is not None and self.layer.supports_masking:
            inputs = unmasked(inputs)
            set_mask(inputs, mask)
        return self.layer(inputs, training=training)

    def _fits(self, mask: Any, inputs: Any) -> bool:
        """Return whether the layer can use the mask of its rows.

        A mask of one axis marks the existing steps. Layers and models of this package
        with sequence inputs expect a mask of the steps of these.
        """
        if mask.ndim > 1 or inputs.ndim < 3:
            return True
        return not (type(self.layer).call.__module__ or "").startswith("toolkit.")


def _with_mask(function: Callable[..., Any], x: TensorLike, mask: Any) -> Any:
    """Return the result of a function, with its mask computed from the mask of `x`."""
    result = function(x)
    if mask is not None:
        set_mask(result, function(mask))
    return result


def _all_masks(tensors: Any) -> Any:
    """Return the masks of tensors, or None if one has none."""
    masks = tuple(map(mask_of, tensors))
    return None if any(mask is None for mask in masks) else masks


def _moves_state(layer: Layer) -> bool:
    """Return whether a training call can change Variables of a layer."""
    return any(
        sublayer.trainable and any(not v.trainable for v in sublayer._own_variables())
        for sublayer in layer._flatten_layers()
    )


def _joined(x: Any) -> Any:
    """Merge the first two axes."""
    return ops.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))


def _split(steps: Any, x: Any) -> Any:
    """Split the first axis into (batch, step)."""
    return ops.reshape(x, (*steps, *x.shape[1:]))


_MERGE = {
    "sum": lambda forward, backward: forward + backward,
    "mul": lambda forward, backward: forward * backward,
    "ave": lambda forward, backward: (forward + backward) / 2,
    "concat": lambda forward, backward: ops.concatenate([forward, backward], axis=-1),
    None: lambda forward, backward: (forward, backward),
}


class Bidirectional(Layer):
    """Wrapper that runs a recurrent layer in both directions.

    Args:
        layer: a recurrent layer; a copy of it runs forward.
        merge_mode: the combination of outputs: "concat", "sum", "mul", "ave"; None: a
            tuple of both.
        weights: initial weights: of the forward layer, then of the backward layer.
        backward_layer: the backward layer; a copy of `layer` if None.

    Call arguments:
        sequences: (batch, steps, features).
        initial_state: the states of the forward layer, then of the backward layer.
        mask, training: passed to both layers.

    Returns:
        the combined outputs; followed by all states if `layer` returns states.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.Bidirectional(toolkit.layers.LSTM(4))
        >>> layer(toolkit.ops.ones((2, 5, 3))).shape
        (2, 8)
    """

    _traces_call = True

    def __init__(
        self,
        layer: Any,
        merge_mode: str | None = "concat",
        weights: Any = None,
        backward_layer: Any = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        for wrapped in (layer, backward_layer or layer):
            if not isinstance(wrapped, Layer) or not hasattr(wrapped, "go_backwards"):
                raise ArgumentTypeError(
                    f"Bidirectional: expected a recurrent layer; received {wrapped!r}"
                )
        self.merge_mode: Any = choice(self, "merge_mode", merge_mode, _MERGE)
        # Files store weights separately, so that the config does not contain them.
        self.__dict__["_arguments"] = {**(self._arguments or {}), "weights": None}
        self.forward_layer: Any = _copy(layer, "forward")
        if backward_layer is None:
            backward_layer = _copy(layer, "backward", go_backwards=True)
        self.backward_layer: Any = backward_layer
        self._check_directions()
        directions: list[Any] = [self.forward_layer, self.backward_layer]
        for direction in directions:
            if hasattr(direction, "zero_output_for_mask"):
                direction.zero_output_for_mask = direction.return_sequences
        self._first_weights = weights
        self.stateful: Any = layer.stateful
        self.return_sequences: Any = layer.return_sequences
        self.return_state: Any = layer.return_state
        self.supports_masking = True
        self.input_spec = layer.input_spec

    def _check_directions(self) -> None:
        forward, backward = self.forward_layer, self.backward_layer
        if forward.go_backwards == backward.go_backwards:
            raise ArgumentError(
                "Bidirectional: one layer must run forwards and the other backwards; "
                f"both have go_backwards={forward.go_backwards}"
            )
        for name in ("stateful", "return_sequences", "return_state"):
            if getattr(forward, name) != getattr(backward, name):
                raise ArgumentError(
                    f"Bidirectional: both layers must have the same {name}; received "
                    f"{getattr(forward, name)} and {getattr(backward, name)}"
                )

    def build(self, sequences_shape: Any, initial_state_shape: Any = None) -> None:
        for direction in (self.forward_layer, self.backward_layer):
            if not direction.built:
                direction.build(sequences_shape)
        if self._first_weights is not None:
            self.set_weights(self._first_weights)

    def call(
        self,
        sequences: Any,
        initial_state: Any = None,
        mask: Any = None,
        training: bool | None = None,
    ) -> Any:
        states: Any = (None, None)
        if initial_state is not None:
            half = len(initial_state) // 2
            states = list(initial_state[:half]), list(initial_state[half:])
        layers = self.forward_layer, self.backward_layer
        results = [
            layer(sequences, initial_state=state, mask=mask, training=training)
            for layer, state in zip(layers, states, strict=True)
        ]
        ends: tuple[Any, ...] = ()
        if self.return_state:
            ends = (*results[0][1:], *results[1][1:])
            results = [outputs[0] for outputs in results]
        forward, backward = (ops.cast(x, self.compute_dtype) for x in results)
        if self.return_sequences:
            backward = ops.flip(backward, axis=1)
        output = _MERGE[self.merge_mode](forward, backward)
        if not self.return_state:
            return output
        return (*output, *ends) if self.merge_mode is None else (output, *ends)

    def compute_output_shape(
        self, sequences_shape: Any, initial_state_shape: Any = None
    ) -> Any:
        """Return the shape of the combined outputs, and of the states if returned.

        Args:
            sequences_shape: the shape of the sequences.
            initial_state_shape: shapes of the states, or None.
        """
        results = self.forward_layer.compute_output_shape(sequences_shape)
        shape, states = results, ()
        if self.return_state:
            shape, *states = results
        if self.merge_mode == "concat":
            shape = (*shape[:-1], 2 * shape[-1])
        outputs = (shape, shape) if self.merge_mode is None else (shape,)
        outputs = (*outputs, *states, *states)
        return outputs if len(outputs) > 1 else shape

    @property
    def states(self) -> Any:
        """Return the states of stateful layers, forward then backward, or None."""
        directions = self.forward_layer.states, self.backward_layer.states
        return (
            tuple(x for direction in directions for x in direction)
            if all(directions)
            else None
        )

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        mask = mask[0] if isinstance(mask, list) else mask
        mask = mask if self.return_sequences else None
        outputs = [mask, mask] if self.merge_mode is None else [mask]
        if self.return_state:
            count = 2 * len(self.forward_layer.state_size)
            outputs += [None] * count
        return outputs if len(outputs) > 1 else mask

    def reset_state(self) -> None:
        """Reset the states of stateful layers to zeros."""
        self.forward_layer.reset_state()
        self.backward_layer.reset_state()

    reset_states = reset_state


def _copy(layer: Layer, direction: str, **changes: Any) -> Layer:
    """Return an unbuilt copy of `layer`, named after its direction."""
    config = serialization.serialize_keras_object(layer)
    config.pop("build_config", None)
    name = f"{direction}_{layer.name.removeprefix(direction + '_')}"
    config["config"] = {**config["config"], **changes, "name": name}
    return serialization.deserialize_keras_object(config)
