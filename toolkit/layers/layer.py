"""Layer: a function of tensors with weights."""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import deepcopy
from typing import Any, Self

import numpy as np

from toolkit import dtype_policies, dtypes, regularizers, tree
from toolkit.arguments import unknown_argument_error
from toolkit.console.frames import warn
from toolkit.console.tracebacks import filter_traceback
from toolkit.core.composites import Composite
from toolkit.core.dialects import dialect_of
from toolkit.core.masks import mask_of, set_mask
from toolkit.core.naming import scopes
from toolkit.core.tensor import Tensor, state
from toolkit.core.trace import StatelessScope
from toolkit.errors import ArgumentError, NotBuiltError, ToolkitError
from toolkit.layers.call import (
    Arguments,
    any_mask,
    call_info,
    check_positional,
    context,
    explain,
    is_tensor,
    masks_in_graph,
    masks_of,
    name_training,
    propagate_arguments,
    standardize_arguments,
    standardize_input,
    without_input_masks,
)
from toolkit.layers.config import Configurable, given_shape
from toolkit.layers.input_spec import check_inputs, describe
from toolkit.layers.remat import current_scope, rematerialized
from toolkit.layers.tracking import no_tracking, with_losses
from toolkit.ops.symbolic import KerasTensor, Operation, is_symbolic, record
from toolkit.type_aliases import PolicyLike, RegularizerLike

_TRAINING = {"training"}
# Types of arguments that are independent of the API dialect.
_PLAIN = {Tensor, KerasTensor, bool, type(None)}


class Layer(Configurable, Operation):
    """Base class of all layers.

    A subclass stores its configuration in `__init__` and creates weights in
    `build(input_shape)`, which runs once, on the first call. It computes in `call`. The
    arguments of its constructor are recorded and form its config.

    Args:
        activity_regularizer: regularizer of the outputs, divided by the batch size and
            added to `losses`.
        trainable: whether optimizers update the weights.
        dtype: a dtype, a policy such as "mixed_bfloat16", or None for the global
            policy.
        autocast: whether to cast floating inputs to the compute dtype. It also applies
            to the weights if a layer with a narrower compute dtype calls this one.
        name: the name; generated from the class name if None.

    Call arguments:
        training: if `call` accepts it: whether to run in training mode. An argument
            overrides the value of the calling layer, which overrides the default.
        mask: if `call` accepts it: by default the mask of the inputs.

    Example:
        >>> import toolkit
        >>> class Scale(toolkit.layers.Layer):
        ...     def build(self, input_shape):
        ...         self.factor = self.add_weight(
        ...             shape=(input_shape[-1],), initializer="ones", name="factor"
        ...         )
        ...     def call(self, inputs):
        ...         return inputs * self.factor
        >>> layer = Scale()
        >>> layer(toolkit.ops.ones((2, 3))).shape, layer.count_params()
        ((2, 3), 3)
    """

    _context_names: tuple[str, ...] = ()
    _remat_scope: Any = None
    _stored_by_calls: Collection[str] = ()  # attributes that were set during calls
    _allow_non_tensor_positional_args = False
    _keeps_masks = False  # whether the outputs have the masks of the sublayers
    # whether `call` receives arrays as tensors, with floats cast
    _convert_input_args = True
    supports_jit = True  # whether compiled functions can include its computation

    def __init__(
        self,
        *,
        activity_regularizer: RegularizerLike | None = None,
        trainable: bool = True,
        dtype: PolicyLike | None = None,
        autocast: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        with no_tracking():
            Operation.__init__(self, name)
        if (shape := given_shape(self, kwargs)) is not None:
            self._input_shape_arg = shape
        if kwargs:
            raise unknown_argument_error(self, kwargs)
        if not isinstance(trainable, bool):
            raise ArgumentError(
                f"{type(self).__name__}: trainable is expected to be a boolean; "
                f"received {trainable!r}"
            )
        self.activity_regularizer: Any = regularizers.get(activity_regularizer)
        self._trainable = trainable
        self.autocast = autocast
        self.dtype_policy = dtype_policies.get(dtype)
        self.__dict__["_losses"] = []
        self.__dict__["_remat_scope"] = current_scope()
        self.__dict__["_info"] = call_info(type(self).call)
        self._computes_mask = type(self).compute_mask is not Layer.compute_mask
        self.supports_masking: bool = self._computes_mask
        self._warned_of_mask = False
        self.built: bool = self.__dict__["_info"].own and self._needs_no_build()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if self.built and name in (self._arguments or ()):
            if state.trace is None and context.layer is None:
                self._mark_changed()  # compiled steps may have read the replaced value
            else:
                self.__dict__["_stored_by_calls"] = {*self._stored_by_calls, name}

    def __copy__(self) -> Self:
        """Copy the layer with separate state, as in Keras."""
        return deepcopy(self)

    # --- calls ------------------------------------------------------------------------

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs; every layer defines it."""
        raise NotImplementedError(
            f"{type(self).__name__} does not have a `call` method implemented."
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            # Fast path for one tensor or array: no traversal of the arguments.
            if (
                len(args) == 1
                and (not kwargs or kwargs.keys() == _TRAINING)
                and self.built
                and not self._computes_mask
                and not self._context_names
            ):
                (x,) = args
                if type(x) is np.ndarray and self._convert_input_args:
                    args = (x := standardize_input(x, self._input_dtype),)
                if type(x) is Tensor and mask_of(x) is None:
                    dtype, input_dtype = x.dtype, self._input_dtype
                    if input_dtype in (None, dtype) or dtype not in dtypes.FLOATS:
                        if self._input_spec is not None:
                            self._check_input(x)
                        return self._run(self.call, args, {}, kwargs.get("training"))
            if not self._context_names:
                return self._general_call(args, kwargs)
            with propagate_arguments(self._context_names, self._info, kwargs) as kwargs:
                return self._general_call(args, kwargs)
        except Exception as error:
            filter_traceback(error)
            raise

    def _check_input(self, x: Tensor) -> None:
        """Raise unless `x` matches the input_spec; the last valid shape is cached."""
        fit = x.shape, x.dtype
        if fit != self._last_fit:
            check_inputs(self._input_spec, x, self)
            self.__dict__["_last_fit"] = fit

    def _general_call(
        self, given_args: Any, given_kwargs: Any, recorded: bool = True
    ) -> Any:
        self._check_initialized()
        if given_args and isinstance(given_args[0], Composite):
            return given_args[0].call_layer(self, given_args, given_kwargs)
        args, kwargs, leaves = standardize_arguments(self, given_args, given_kwargs)
        dialect = None if _PLAIN.issuperset(map(type, leaves)) else dialect_of(leaves)
        if dialect is not state.dialect and dialect is not None:
            with dialect.activate():
                return self._general_call(given_args, given_kwargs, recorded)
        symbolic = any(map(is_symbolic, leaves))
        if not (self._allow_non_tensor_positional_args or all(map(is_tensor, leaves))):
            check_positional(self, args)
        names = self._info.names
        if 1 < len(args) <= len(names) and "training" in names[: len(args)]:
            args, kwargs = name_training(names, args, kwargs)
        training = kwargs.get("training")
        if not self._info.takes_training or training is None:
            kwargs.pop("training", None)
        arguments = Arguments(self, self._info, args, kwargs)
        if self._input_spec is not None:
            check_inputs(self._input_spec, arguments.first, self)
        kwargs.update(arguments.masks())
        mask = kwargs.get("mask")
        mask = masks_of(arguments.first) if mask is None else mask
        if symbolic:
            outputs = self._symbolic_run(arguments, args, kwargs, training)
        else:
            outputs = self._run(self.call, args, kwargs, training, arguments)
        outputs = self._pass_mask(arguments, outputs, mask)
        if symbolic and recorded:
            masks = masks_in_graph(self, given_args, given_kwargs, kwargs.get("mask"))
            record(self, given_args, given_kwargs, outputs, masks)
        return outputs

    def _symbolic_run(
        self, arguments: Arguments, args: Any, kwargs: Any, training: bool | None
    ) -> Any:
        with context.override(symbolic=True):
            outputs = self._run(
                self.compute_output_spec, args, kwargs, training, arguments
            )
        # A symbol that passes through unchanged must keep its origin.
        inputs = {id(x) for x in tree.flatten(arguments.by_name)}
        return tree.map_structure(lambda x: _own_symbol(x, inputs), outputs)

    def _run(
        self,
        function: Callable[..., Any],
        args: Any,
        kwargs: Any,
        training: bool | None,
        arguments: Any = None,
    ) -> Any:
        """Run `call` or `compute_output_spec` in this layer's context."""
        outer, names = context.layer, scopes.names
        outer_training, autocast = context.training, state.autocast
        if outer is None and with_losses:
            self._clear_losses()
        if training is None:
            training = outer_training
        if training is None:
            training = self._info.training_default
        if training is not None and self._info.takes_training:
            kwargs = {**kwargs, "training": training}
        context.layer, context.training = self, training
        scopes.names = (*names, self.name)
        reads = self._autocast_dtype
        state.autocast = reads if self.autocast or autocast is None else None
        try:
            if not self.built:
                self._build_for(arguments)
            elif self._path is None:
                self._set_path()
            if self._remat_scope is not None and state.tapes:
                function = self.rematerialized_call(function, *args, **kwargs)
            outputs = function(*args, **kwargs)
            if not self.built:
                self._finish_build()
            if self.activity_regularizer is not None:
                self._regularize_activity(outputs)
            return outputs
        except ToolkitError as error:
            explain(error, self, args, kwargs)
            raise
        finally:
            context.layer, context.training = outer, outer_training
            scopes.names = names
            state.autocast = autocast

    def _pass_mask(self, arguments: Arguments, outputs: Any, mask: Any) -> Any:
        """Return the outputs with their mask, computed from the mask of the inputs."""
        masked = any_mask(mask)
        if self._keeps_masks or not (masked or self._computes_mask):
            return outputs
        outputs = without_input_masks(arguments.by_name, outputs)
        if not self.supports_masking:
            if masked:
                self._warn_of_mask()
            return outputs
        tensors = [
            x for x in tree.flatten(outputs) if isinstance(x, (Tensor, KerasTensor))
        ]
        if all(mask_of(x) is not None for x in tensors):
            return outputs
        masks = self.compute_mask(arguments.first, mask)
        if masks is None:
            return outputs
        for tensor, its_mask in zip(tensors, tree.flatten(masks), strict=False):
            if its_mask is not None and mask_of(tensor) is None:
                set_mask(tensor, its_mask)
        return outputs

    def _pass_masks_only(self) -> None:
        """Call `compute_mask` only for inputs that have a mask."""
        self._computes_mask = False
        self.supports_masking = True

    def _warn_of_mask(self) -> None:
        """Warn once that this layer drops the mask of its inputs."""
        if not self._warned_of_mask:
            self._warned_of_mask = True
            warn(
                f"{describe(self)}: does not support masking; the next layers do not "
                "receive the mask of its inputs"
            )

    def rematerialized_call(self, layer_call: Any, *args: Any, **kwargs: Any) -> Any:
        """Return `layer_call`, rematerialized if the layer's RematScope covers it.

        Args:
            layer_call: the method `call`.
            *args, **kwargs: the arguments of the call.
        """
        if self._remat_scope is None:
            return layer_call
        return rematerialized(self, layer_call, args, kwargs)

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        """Return the mask of the outputs; by default the mask of the inputs."""
        return previous_mask

    def _register_call_context_args(self, *names: str) -> None:
        """Propagate arguments of this name to sublayers, like `training`.

        A layer that registers a name receives the value of the innermost enclosing call
        that has one, unless the caller passes a value.
        """
        self._context_names = (*self._context_names, *names)

    @property
    def _call_context_args(self) -> set[str]:
        return {"training", *self._context_names}

    def stateless_call(
        self,
        trainable_variables: Any,
        non_trainable_variables: Any,
        *args: Any,
        return_losses: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Call the layer with given values of its variables, without changing any.

        Args:
            trainable_variables: one value for each of `self.trainable_variables`.
            non_trainable_variables: one value for each of
                `self.non_trainable_variables`.
            *args, **kwargs: as for a call.
            return_losses: whether to also return `losses`.

        Returns:
            (outputs, new non-trainable values), and the losses if requested.
        """
        if not self.built:
            raise NotBuiltError(f"{self.name}.stateless_call: build the layer first")
        pairs: list[tuple[Any, Any]] = []
        for attribute, values in (
            ("trainable_variables", trainable_variables),
            ("non_trainable_variables", non_trainable_variables),
        ):
            variables = getattr(self, attribute)
            if len(variables) != len(values):
                raise ArgumentError(
                    f"{self.name}.stateless_call: expected {len(variables)} "
                    f"{attribute}; "
                    f"received {len(values)}"
                )
            pairs += zip(variables, values, strict=True)
        with StatelessScope(pairs) as scope:
            outputs = self(*args, **kwargs)
            losses = self.losses if return_losses else []
        updated = [scope.get_current_value(v) for v in self.non_trainable_variables]
        return (outputs, updated, losses) if return_losses else (outputs, updated)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}, built={self.built}>"


def call_with_composite(
    layer: Layer,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    build_shape: tuple[int | None, ...] | None = None,
) -> object:
    """Run the `call` method of a layer that accepts a composite as its input.

    Args:
        layer: the layer.
        args: the positional arguments, the composite first. They are not converted.
        kwargs: the keyword arguments. Those that `call` does not accept are dropped.
        build_shape: the argument of `build` if the layer has no weights yet. None: the
            call creates them.
    """
    is_built = layer.built
    if not is_built:
        layer._set_path()
        if build_shape is not None:
            layer.build(build_shape)
        layer.built = True
    names = layer._info.names
    options = {k: x for k, x in kwargs.items() if k in names and k != "training"}
    training: Any = kwargs.get("training")
    outputs: object = layer._run(layer.call, args, options, training)
    if not is_built:
        layer._finish_build()
    return outputs


def _own_symbol(x: Any, inputs: set[int]) -> Any:
    """Return `x`, or a new symbol like it if it already belongs to another call.

    A symbol like one of the inputs has no mask: the layer computes it.
    """
    if not is_symbolic(x) or x._keras_history is None:
        return x
    symbol = KerasTensor(x.shape, x.dtype)
    set_mask(symbol, None if id(x) in inputs else mask_of(x))
    return symbol
