"""Layer: a function of tensors with weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from typing import Any, Self, TypeAlias, overload

import numpy as np

from toolkit import dtype_policies, dtypes, regularizers
from toolkit.arguments import unknown_argument_error
from toolkit.console.tracebacks import filter_traceback
from toolkit.core.keras_tensor import KerasTensor
from toolkit.core.masks import mask_of
from toolkit.core.tensor import Tensor, state
from toolkit.core.trace import StatelessScope
from toolkit.definitions import foreign_names, hints
from toolkit.errors import ArgumentError, NotBuiltError
from toolkit.ir.extents import has_extent
from toolkit.layers.call import (
    Call,
    UnrecordedCall,
    call_info,
    context,
    standardize_input,
)
from toolkit.layers.call_path import ATTRIBUTES, CallPath, compose
from toolkit.layers.config import Configurable, given_shape
from toolkit.layers.input_spec import check_inputs
from toolkit.layers.remat import current_scope, rematerialized
from toolkit.layers.replays import LayerReplays, can_replay
from toolkit.layers.tracking import no_tracking
from toolkit.ops.symbolic import Operation
from toolkit.type_aliases import PolicyLike, RegularizerLike

_TRAINING = {"training"}
Symbols: TypeAlias = KerasTensor | Sequence[KerasTensor] | Mapping[str, KerasTensor]


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

    _call_path: CallPath | None = None  # None if it must be composed
    _context_names: tuple[str, ...] = ()
    _remat_scope: Any = None
    _replays: LayerReplays | None = None
    _stored_by_calls: Collection[str] = ()  # attributes that were set during calls
    # attributes, other than constructor arguments, on whose values traces depend
    _trace_constants: tuple[str, ...] = ()
    _allow_non_tensor_positional_args = False
    _keeps_masks = False  # whether the outputs have the masks of the sublayers
    # whether `call` receives arrays as tensors, with floats cast
    _convert_input_args = True
    supports_jit = True  # whether compiled functions can include its computation
    # whether traces record its calls, which run in Python before the program
    runs_before_program = False
    warns_of_python = False  # whether a call warns that it is not compiled

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
        self.__dict__["_replays"] = LayerReplays() if can_replay(type(self)) else None
        self.__dict__["_info"] = call_info(type(self).call)
        self._computes_mask = type(self).compute_mask is not Layer.compute_mask
        self.supports_masking: bool = self._computes_mask
        self.built: bool = self.__dict__["_info"].own and self._needs_no_build()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in ATTRIBUTES:
            self.__dict__["_call_path"] = None
        if self.built and name in (self._arguments or ()):
            if state.trace is None and context.layer is None:
                self._mark_changed()  # compiled steps may have read the replaced value
            else:
                self.__dict__["_stored_by_calls"] = {*self._stored_by_calls, name}

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        self.__dict__["_call_path"] = None

    def __copy__(self) -> Self:
        """Copy the layer with separate state, as in Keras."""
        return deepcopy(self)

    # --- calls ------------------------------------------------------------------------

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs; every layer defines it.

        Returns:
            The outputs.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not have a `call` method implemented."
            f"{' Rename `forward` to `call`.' if hasattr(self, 'forward') else ''}"
        )

    @overload
    def __call__(self, inputs: Symbols, *args: Any, **kwargs: Any) -> KerasTensor: ...

    @overload
    def __call__(self, *args: Any, **kwargs: Any) -> Tensor: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            replays, x = self._replays, None
            has_no_names = not kwargs or kwargs.keys() == _TRAINING
            is_single = len(args) == 1 and has_no_names
            if is_single:
                (x,) = args
                if replays is not None:
                    if type(x) is np.ndarray and self._convert_input_args:
                        x = standardize_input(x, self._input_dtype)
                    if type(x) is Tensor:
                        outputs = replays.call(self, x, kwargs)
                        if outputs is not None:
                            return outputs
            if replays is not None and type(x) is not Tensor:
                outputs = replays.call_nested(self, args, kwargs)
                if outputs is not None:
                    return outputs
            path = self._call_path or self._compose_path()
            # Fast path for one tensor or array: no traversal of the arguments.
            if is_single and path.is_plain and not self._computes_mask:
                if type(x) is np.ndarray and self._convert_input_args:
                    x = standardize_input(x, self._input_dtype)
                args = (x,)
                if type(x) is Tensor and mask_of(x) is None:
                    dtype, input_dtype = x._dtype, self._input_dtype
                    is_cast = input_dtype is not None and input_dtype != dtype
                    if not is_cast or dtype not in dtypes.FLOATS:
                        if self._input_spec is not None:
                            self._check_input(x)
                        training = kwargs.pop("training") if kwargs else None
                        return path.run(Call(self, self.call, args, kwargs, training))
            if has_no_names and path.is_plain and self._needs_no_changes(args):
                training = kwargs.pop("training") if kwargs else None
                return path.run(Call(self, self.call, args, kwargs, training))
            return path.general(Call(self, self.call, args, kwargs))
        except Exception as error:
            filter_traceback(error)
            raise

    def _needs_no_changes(self, args: tuple[object, ...]) -> bool:
        """Return whether `call` can receive positional arguments as they are.

        These are tensors, and lists and tuples of tensors, of the right dtypes and
        without masks.

        Args:
            args: the positional arguments.
        """
        info, num_args, input_dtype = self._info, len(args), self._input_dtype
        if self._computes_mask or self._input_spec is not None or not info.plain:
            return False
        if not info.required <= num_args <= len(info.names):
            return False
        if "training" in info.names[:num_args]:
            return False
        for x in args:
            for y in x if type(x) is list or type(x) is tuple else (x,):
                if type(y) is not Tensor or mask_of(y) is not None:
                    return False
                is_cast = input_dtype not in (None, y._dtype)
                if is_cast and y._dtype in dtypes.FLOATS:
                    return False
        return bool(args)

    def _check_input(self, x: Tensor) -> None:
        """Raise unless `x` matches the input_spec; the last valid shape is cached."""
        fit = x.shape, x._dtype
        if has_extent(x.shape):
            check_inputs(self._input_spec, x, self)
        elif fit != self._last_fit:
            check_inputs(self._input_spec, x, self)
            self.__dict__["_last_fit"] = fit

    def _compose_path(self) -> CallPath:
        """Compose the path of calls; the change of an attribute can invalidate it."""
        self._check_initialized()
        # Repeat it if another thread has changed an attribute in the meantime.
        while (path := compose(self)) is not self._call_path:
            self.__dict__["_call_path"] = path
        return path

    def _call_unrecorded(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Any:
        """Call the layer without a node in the graph of its symbols."""
        path = self._call_path or self._compose_path()
        return path.general(UnrecordedCall(self, self.call, args, kwargs))

    def _run(
        self,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        training: bool | None,
    ) -> Any:
        """Run `call` in this layer's context, with arguments that need no changes."""
        path = self._call_path or self._compose_path()
        return path.run(Call(self, self.call, args, kwargs, training))

    def _pass_masks_only(self) -> None:
        """Call `compute_mask` only for inputs that have a mask."""
        self._computes_mask = False
        self.supports_masking = True

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
        """Return the mask of the outputs; by default the mask of the inputs.

        Args:
            inputs: the inputs of the call.
            previous_mask: the masks of the inputs, or None.
        """
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
        if "_dtype_policy" not in vars(self):
            return f"<{type(self).__name__} without super().__init__()>"
        return f"<{type(self).__name__} name={self.name}, built={self.built}>"


hints.explain_missing(Layer, foreign_names.LAYERS)


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
    outputs: object = layer._run(args, options, training)
    if not is_built:
        layer._finish_build()
    return outputs
