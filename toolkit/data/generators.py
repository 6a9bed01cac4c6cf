"""Datasets of generators: elements are checked and stacked in bulk for batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from time import perf_counter_ns
from typing import Any

import numpy as np

from toolkit.buffer_pool import BufferPool
from toolkit.data.dataset import Dataset, source
from toolkit.data.errors import add_location_note, describe_location
from toolkit.data.signatures import make_batch_buffer, make_converter
from toolkit.data.specs import relax_extents
from toolkit.data.streams import PassContext, Stream
from toolkit.data.structure import Empty, TensorSpec, map_leaves, stack_elements
from toolkit.errors import ArgumentError, ArgumentTypeError


@source("from_generator")
class FromGenerator(Dataset):
    """The elements of a generator; each pass calls its function again.

    Args:
        generator: a function that returns an iterable, called with `args`.
        output_types: the dtypes of an element's values, with the structure of the
            element. `output_signature` replaces it.
        output_shapes: their shapes, with None for variable extents. By default, all
            extents can vary.
        args: arguments of `generator`, as NumPy arrays.
        output_signature: the TensorSpecs of an element's values.

    An element that does not match these raises an error. Without a signature, elements
    are not checked. Arrays that match are not copied, so the generator must yield a new
    array for each element. To restore a position, the data set takes and discards
    elements.

    Example:
        >>> from toolkit.data import Dataset, TensorSpec
        >>> def count(stop):
        ...     for i in range(stop):
        ...         yield i, [1.0] * i
        >>> signature = TensorSpec((), "int32"), TensorSpec((None,), "float32")
        >>> rows = Dataset.from_generator(count, args=(3,), output_signature=signature)
        >>> [(int(i), x.tolist()) for i, x in rows]
        [(0, []), (1, [1.0]), (2, [1.0, 1.0])]
    """

    def __init__(
        self,
        generator: Callable[..., Iterable[Any]],
        output_types: Any = None,
        output_shapes: Any = None,
        args: tuple[Any, ...] | None = None,
        output_signature: Any = None,
    ) -> None:
        super().__init__()
        if not callable(generator):
            raise ArgumentTypeError(
                "from_generator: expected a function that returns an iterable, so "
                "that each pass can create a new one; received "
                f"{type(generator).__name__}"
            )
        if output_signature is not None and output_types is not None:
            raise ArgumentError(
                "from_generator: expected output_signature or output_types; received "
                "both"
            )
        self._generator = generator
        self._args = tuple(np.asarray(arg)[()] for arg in args or ())
        self._signature = map_leaves(_core_spec, output_signature)
        if output_types is not None:
            self._signature = _signature_of(output_types, output_shapes)

    def _stream(self, context: PassContext) -> Stream:
        return _GeneratorStream(self, context)

    def _spec(self) -> Any:
        if self._signature is None:  # the variable extents are unknown
            return map_leaves(relax_extents, super()._spec())
        return self._signature


def _core_spec(spec: Any) -> Any:
    """Return a spec of a subclass as a TensorSpec with a NumPy dtype."""
    if isinstance(spec, TensorSpec) and type(spec) is not TensorSpec:
        return TensorSpec(spec.shape, spec.dtype, spec.name)
    return spec


def _signature_of(types: Any, shapes: Any) -> Any:
    """Return the TensorSpecs for types and shapes with the same structure."""
    if isinstance(types, (tuple, list)):
        received_shapes = [None] * len(types) if shapes is None else shapes
        return tuple(map(_signature_of, types, received_shapes))
    if isinstance(types, dict):
        return {k: _signature_of(types[k], shapes and shapes[k]) for k in types}
    return TensorSpec(shapes, types)


class _GeneratorStream(Stream):
    fields = ("position",)

    def __init__(self, dataset: FromGenerator, context: PassContext) -> None:
        super().__init__(dataset, context)
        self._from = dataset
        self._signature = dataset._signature
        self._buffer = (
            None if self._signature is None else make_batch_buffer(self._signature)
        )
        self.position = 0

    def _iterate_generator(self) -> Iterator[Any]:
        """Return an iterator over the generator from the current position."""
        iterator = iter(self._from._generator(*self._from._args))
        return islice(iterator, self.position, None)

    def elements(self) -> Iterator[Any]:
        fit = None if self._signature is None else make_converter(self._signature)
        try:
            for element in self._iterate_generator():
                fitted = element if fit is None else fit(element)
                self.position += 1
                yield fitted
        except Exception as error:
            self._note(error)
            raise

    def stacked(self, size: int, drops: bool) -> Iterator[Any]:
        buffers = BufferPool()
        for elements in self._buffered_lists(size):
            if drops and len(elements) < size:
                self._fit_elements(elements)  # checks the discarded elements too
                return
            batch = self._stacked(elements, buffers.empty)
            self.position += len(elements)
            yield batch

    def _buffered_lists(self, size: int) -> Iterator[list[Any]]:
        """Return the elements of a batch, copied if the generator can reuse them."""
        yielded: Iterator[Any] | None = None
        while True:
            elements: list[Any] = []
            error: Exception | None = None
            start = perf_counter_ns()
            try:
                if yielded is None:
                    yielded = self._iterate_generator()
                    if self._buffer is not None:
                        yielded = self._buffer.buffer(yielded)
                elements.extend(islice(yielded, size))  # those before an error
            except Exception as raised:
                error = raised
            if error is not None:
                try:
                    # Outside the `except`: this error is not the cause of a mismatch.
                    self.position += len(self._fit_elements(elements))
                    self._note(error)
                    raise error
                finally:
                    del error  # its traceback refers to this frame
            if not elements:
                return
            self.stage.record(start, perf_counter_ns(), len(elements))
            yield elements

    def _fit_elements(self, elements: list[Any]) -> list[Any]:
        """Return elements converted to the signature, or raise for a mismatch."""
        if self._buffer is None:
            return elements
        fitted: list[Any] = []
        try:
            fitted.extend(map(self._buffer.fit, elements))
        except Exception as error:
            self.position += len(fitted)
            self._note(error)
            raise
        return fitted

    def _stacked(self, elements: list[Any], empty: Empty) -> Any:
        if self._buffer is not None:
            with suppress(Exception):  # a single element causes any error
                return self._buffer.stacked(elements, empty)
        return stack_elements(self._fit_elements(elements), empty)

    def _note(self, error: Exception) -> None:
        add_location_note(
            error, describe_location("from_generator", self.position, None)
        )
