"""The shapes and dtypes that a layer's outputs will have."""

from __future__ import annotations

from typing import Any

from toolkit import tree
from toolkit.core.naming import keep_counts
from toolkit.layers.call import Arguments, context, map_shapes, match_shapes
from toolkit.ops.symbolic import KerasTensor, infer, infer_fitting, is_symbolic

# A model that is called with inputs that do not fit runs this often before it says so.
_GUESSES = 50


class Inferring:
    """Base of layers: output shapes are inferred by running `call` with symbols."""

    # Whether `call` with symbols tells more than `compute_output_shape`, as dtypes.
    _traces_call = False
    _info: Any
    _general_call: Any
    built: bool
    call: Any
    get_config: Any
    _dtype_policy: Any
    from_config: Any

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """The symbols that a call with these symbols would return."""
        if context.layer is not self:
            if self.built:
                return self._general_call(args, kwargs, recorded=False)
            return self._infer_unbuilt(args, kwargs)
        if self._traces_call or type(self).compute_output_shape is _inferred_shape:
            return self._infer_call(args, kwargs)
        arguments = Arguments(self, self._info, args, kwargs)
        shapes = arguments.shapes()
        shapes = match_shapes(self.compute_output_shape, shapes, arguments.by_name)
        output_shape = self.compute_output_shape(**shapes)
        return map_shapes(
            lambda s: KerasTensor(s, self._dtype_policy.compute_dtype), output_shape
        )

    def compute_output_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The shape of the outputs for inputs of these shapes (None: unknown).

        Args:
            *args, **kwargs: shapes, or structures of them, for the arguments of `call`;
                those passed by name end in `_shape`.
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
        """What `call` returns for symbols; extents that are open may fit others'."""
        inputs = [x for x in tree.flatten((args, kwargs)) if is_symbolic(x)]
        if len(inputs) < 2:
            return infer(self.call, args, kwargs)
        return infer_fitting(self.call, args, kwargs, limit=_GUESSES)

    def _infer_unbuilt(self, args: Any, kwargs: Any) -> Any:
        """The output symbols by way of a twin, whose weights cost nothing."""
        with context.inside(weightless=True), keep_counts():
            twin = type(self).from_config(self.get_config())
            return twin._general_call(args, kwargs, recorded=False)


_inferred_shape = Inferring.compute_output_shape
