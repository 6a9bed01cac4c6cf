"""Creation of a layer's weights and inference of shapes: `build` and `add_weight`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec

from toolkit import constraints, dtypes, initializers, regularizers, tree
from toolkit.arguments import is_int
from toolkit.console.frames import warn
from toolkit.core.hooks import notify_new_variables
from toolkit.core.keras_tensor import KerasTensor, standardize_shape
from toolkit.core.naming import current_path, restore_counts, scopes
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, ArgumentTypeError
from toolkit.layers.call import (
    Arguments,
    CallInfo,
    context,
    is_shape,
    map_shapes,
    match_shapes,
)
from toolkit.layers.input_spec import check_inputs, describe
from toolkit.layers.masks import without_input_masks
from toolkit.layers.precision import Precision
from toolkit.layers.tracking import StateOwner
from toolkit.ops.symbolic import infer, infer_fitting, is_symbolic
from toolkit.reading.budget import refund_at_end
from toolkit.type_aliases import (
    ConstraintLike,
    DTypeLike,
    InitializerLike,
    RegularizerLike,
    Shape,
)

P = ParamSpec("P")

# A model whose inputs do not fit runs at most this often before the error.
_GUESSES = 50


def in_scope(build: Any) -> Any:
    """Wrap `build`: run it in the layer's name scope and mark the layer as built.

    A `build` that fails leaves the layer without weights. A repeated build for the same
    shapes, ignoring the batch, does nothing.
    """

    @wraps(build)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        if self._building:  # a subclass calls super().build()
            build(self, *args, **kwargs)
            return
        shapes = inspect.signature(build).bind(self, *args, **kwargs).arguments
        shapes = dict(list(shapes.items())[1:])
        if self.built and _same_features(self._build_shapes, shapes):
            return
        owned = list(self._owned)
        self._building = True
        try:
            with self._scope():
                self._set_path()
                build(self, *args, **kwargs)
        except BaseException:
            self._keep(owned)
            raise
        finally:
            self._building = False
        self.__dict__["_build_shapes"] = shapes
        self._finish_build()

    return wrapper


def _same_features(before: dict[str, Any] | None, current: dict[str, Any]) -> bool:
    """Return whether a layer was built for these shapes, ignoring their first axes."""
    return before is not None and bool(_features(before) == _features(current))


def _features(shapes: Any) -> Any:
    """Return a structure of shapes without their first axes."""
    if isinstance(shapes, dict):
        return {key: _features(value) for key, value in shapes.items()}
    if is_shape(shapes):
        return tuple(shapes[1:])
    is_nest = isinstance(shapes, (list, tuple))
    return tuple(map(_features, shapes)) if is_nest else shapes


def _shape_first(add_weight: Callable[P, Variable]) -> Callable[P, Variable]:
    """Wrap `add_weight`: raise a clear error for a positional name (old signature)."""

    @wraps(add_weight)
    def wrapper(*args: P.args, **options: P.kwargs) -> Variable:
        if len(args) > 1 and isinstance(args[1], str):
            raise ArgumentTypeError(
                f"{describe(args[0])}: add_weight expected a shape first; received "
                f"{args[1]!r}; pass the name as keyword argument, `name={args[1]!r}`"
            )
        return add_weight(*args, **options)

    return wrapper


class Buildable(StateOwner, Precision):
    """Base class of layers: weights are created once, for the shapes of the first call.

    Output shapes are inferred by running `call` with symbols.
    """

    # Whether a symbolic `call` returns more than `compute_output_shape`, such as
    # dtypes.
    _traces_call = False
    _build_shapes: dict[str, Any] | None = None
    _output_shapes = ""  # of the first call, as text; "" before it
    _building = False
    _input_spec: Any = None
    _last_fit: Any = None  # a shape and a dtype that match `_input_spec`
    built: bool = False
    call: Any
    get_config: Any
    from_config: Any
    _info: CallInfo
    _call_unrecorded: Any
    _keeps_masks: bool

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "build" in vars(cls):
            cls.build = in_scope(cls.build)  # type: ignore[method-assign]

    @property
    def path(self) -> str | None:
        """Return the name with the names of enclosing layers, `model/dense`."""
        return self._path

    @property
    def input_spec(self) -> Any:
        """Return the spec of the inputs: an InputSpec, a nest of them, or None."""
        return self._input_spec

    @input_spec.setter
    def input_spec(self, value: Any) -> None:
        self._input_spec = value
        self._last_fit = None

    def build(self, input_shape: Any) -> None:
        """Create the weights for inputs of this shape (None: an unknown extent).

        The default creates none. It builds sublayers by a symbolic call, unless an
        overriding `build` of the class calls it.

        Args:
            input_shape: the shape, or shapes, of the inputs.
        """
        if self.built or not self._needs_no_build():
            return
        if any(not sublayer.built for sublayer in self._sublayers()):
            dtype = self._dtype_policy.compute_dtype
            symbols = map_shapes(lambda s: KerasTensor(s, dtype), input_shape)
            with context.override(symbolic=True):
                infer(self.call, (symbols,), {})

    def _build_for(self, arguments: Arguments) -> None:
        """Build for the arguments of the first call, if the class defines `build`."""
        self._set_path()
        if self._needs_no_build():
            self.__dict__["_build_shapes"] = dict(list(arguments.shapes().items())[:1])
            return
        self.build(**match_shapes(self.build, arguments.shapes(), arguments.by_name))
        if self._input_spec is not None:
            check_inputs(self._input_spec, arguments.first, self)

    def _needs_no_build(self) -> bool:
        """Return whether the class defines no `build`, so that it has no weights."""
        return getattr(type(self).build, "__wrapped__", None) is _default_build

    def _build_at_init(self) -> None:
        """Mark the layer as built if it needs no build; for the end of `__init__`."""
        if self._needs_no_build():
            self._finish_build()

    def _set_path(self) -> None:
        self._path = current_path()
        if self._policy_map is not None:
            self._use_policy(self._policy_in(self._policy_map))

    def _finish_build(self) -> None:
        self.built = True
        self._locked = True
        notify_new_variables()

    def get_build_config(self) -> dict[str, Any] | None:
        """Return the shapes of the build, for `build_from_config`."""
        shapes = self._build_shapes
        if not shapes:
            return None
        if len(shapes) == 1:
            return {"input_shape": next(iter(shapes.values()))}
        return {"shapes_dict": shapes}

    def build_from_config(self, config: dict[str, Any] | None) -> None:
        """Build the layer with the result of `get_build_config`.

        A layer without `build` whose `call` needs several arguments is built by its
        first call.

        Args:
            config: the result of `get_build_config`.
        """
        if self._needs_no_build() and self._info.required > 1:
            return
        if config and "input_shape" in config:
            self.build(config["input_shape"])
        elif config and "shapes_dict" in config:
            self.build(**config["shapes_dict"])

    @_shape_first
    def add_weight(
        self,
        shape: int | Shape | None = None,
        initializer: InitializerLike | None = None,
        dtype: DTypeLike | None = None,
        *,
        trainable: bool = True,
        autocast: bool = True,
        regularizer: RegularizerLike | None = None,
        constraint: ConstraintLike | None = None,
        aggregation: str = "none",
        overwrite_with_gradient: bool = False,
        name: str | None = None,
    ) -> Variable:
        """Create a weight of this layer.

        Args:
            shape: its shape, without unknown extents; () by default.
            initializer: a name, an initializer or a function `(shape, dtype)`;
                "glorot_uniform" by default, "zeros" for dtypes that are not floating.
            dtype: the dtype; the layer's variable dtype by default.
            trainable: whether optimizers update it.
            autocast: whether reads cast it to the layer's compute dtype.
            regularizer: regularizer of its value, added to `losses`.
            constraint: constraint, applied after each update.
            aggregation: the aggregation over replicas.
            overwrite_with_gradient: whether its gradient is its next value.
            name: the last component of its path.

        Returns:
            The weight.
        """
        self._check_initialized()
        extents = _weight_shape(self, shape, name)
        dtype = dtypes.standardize(dtype or self._dtype_policy.variable_dtype)
        if initializer is None:
            initializer = "glorot_uniform" if dtypes.is_float(dtype) else "zeros"
        initializer = initializers.get("zeros" if context.weightless else initializer)
        with self._scope():
            variable = Variable(
                initializer, extents, dtype, trainable, autocast, aggregation, name=name
            )
        variable.regularizer = regularizers.get(regularizer)
        variable.constraint = constraints.get(constraint)
        variable.overwrite_with_gradient = overwrite_with_gradient
        self._track(variable)
        return variable

    add_variable = add_weight

    @contextmanager
    def _scope(self) -> Iterator[None]:
        """Open this layer's name scope, unless it is the current one."""
        if context.layer is self:
            yield
            return
        outer = context.layer, scopes.names
        context.layer, scopes.names = self, (*scopes.names, self.name)
        try:
            yield
        finally:
            context.layer, scopes.names = outer

    def _check_initialized(self) -> None:
        if getattr(self, "_dtype_policy", None) is None:
            raise ArgumentError(
                f"{type(self).__name__}: call super().__init__() first in __init__"
            )

    # --- output shapes ----------------------------------------------------------------

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Return the symbolic outputs of a call with these symbolic tensors."""
        if context.layer is not self:
            if self.built:
                return self._call_unrecorded(args, kwargs)
            return self._infer_unbuilt(args, kwargs)
        if self._traces_call or type(self).compute_output_shape is _inferred_shape:
            return self._infer_call(args, kwargs)
        if self._needs_no_build() and any(not x.built for x in self._sublayers()):
            self._build_inside(args, kwargs)
        arguments = Arguments(self, self._info, args, kwargs)
        shapes = arguments.shapes()
        shapes = match_shapes(self.compute_output_shape, shapes, arguments.by_name)
        output_shape = self.compute_output_shape(**shapes)
        return map_shapes(
            lambda s: KerasTensor(s, self._dtype_policy.compute_dtype), output_shape
        )

    def compute_output_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Return the shape of the outputs for inputs of these shapes (None: unknown).

        Args:
            *args, **kwargs: shapes, or structures of them, for the arguments of `call`;
                keywords end in `_shape`.
        """

        def symbols(shapes: Any) -> Any:
            return map_shapes(
                lambda s: KerasTensor(s, self._dtype_policy.compute_dtype), shapes
            )

        named = {k.removesuffix("_shape"): symbols(v) for k, v in kwargs.items()}
        if not args and "input" in named and "input" not in self._info.names:
            args = (kwargs["input_shape"],)
            del named["input"]
        outputs = self.compute_output_spec(*map(symbols, args), **named)
        return tree.map_structure(lambda x: x.shape, outputs)

    def _infer_call(self, args: Any, kwargs: Any) -> Any:
        """Run `call` with symbols; unknown extents of different inputs can be equal."""
        inputs = [x for x in tree.flatten((args, kwargs)) if is_symbolic(x)]
        call = self.call if self._keeps_masks else self._call_without_input_masks
        if len(inputs) < 2:
            return infer(call, args, kwargs)
        return infer_fitting(call, args, kwargs, limit=_GUESSES)

    def _call_without_input_masks(self, *args: Any, **kwargs: Any) -> Any:
        return without_input_masks((args, kwargs), self.call(*args, **kwargs))

    def _build_inside(self, args: Any, kwargs: Any) -> None:
        """Build the sublayers by a symbolic call; warn if that is impossible."""
        try:
            self._infer_call(args, kwargs)
        except Exception as error:
            warn(
                f"{describe(self)}: the sublayers have no weights yet, because "
                f"`call` cannot run with symbols ({error}). Call the layer with "
                "data, or define its `build`"
            )

    def _infer_unbuilt(self, args: Any, kwargs: Any) -> Any:
        """Infer the output symbols with an unbuilt copy, whose weights are free."""
        with context.override(weightless=True), restore_counts(), refund_at_end():
            twin = type(self).from_config(self.get_config())
            return twin._call_unrecorded(args, kwargs)


_inferred_shape = Buildable.compute_output_shape
_default_build = Buildable.build
Buildable.build = in_scope(Buildable.build)  # type: ignore[method-assign]


def _weight_shape(layer: Any, shape: Any, name: str | None) -> tuple[int, ...]:
    if shape is None:
        return ()
    extents = standardize_shape((shape,) if is_int(shape) else shape)
    static = tuple(n for n in extents if n is not None)
    if len(static) < len(extents):
        raise ArgumentError(
            f"{describe(layer)}: the weight {name!r} needs known extents; received "
            f"{extents}"
        )
    return static
