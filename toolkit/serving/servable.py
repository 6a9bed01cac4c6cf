"""Servables: models of any kind as functions of arrays with few batch sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from toolkit import dtypes, tree
from toolkit.core.convert import convert
from toolkit.core.trace import Trace
from toolkit.errors import ArgumentError, InputError, NotBuiltError, UnsupportedError
from toolkit.export.batching import can_be_batched
from toolkit.export.inference import (
    BATCH,
    Signature,
    output_names,
    signature_of,
    trace_inference,
    without_gradients,
)
from toolkit.functions.concrete_function import ConcreteFunction
from toolkit.functions.function import Function
from toolkit.ir import Graph
from toolkit.serving.messages import RequestError
from toolkit.serving.tensors import DATATYPES, TensorSpec
from toolkit.thread_state import restore_on_error

# Maximum number of cached programs for undeclared input shapes; the oldest is dropped.
MAX_PROGRAMS = 256
# Maximum number of buffers of a worker; above it, all are dropped.
MAX_BUFFERS = 64
# Maximum size of the texts of a batch, padded to the longest, at 4 bytes per character.
MAX_TEXT_BYTES = 256 * 2**20
# Slower batches are not computed in the thread that reads requests.
QUICK_SECONDS = 1e-3


Arrays = Sequence[Any]
Buffers = dict[tuple[int, ...], Any]


def batch_sizes(largest: int, one_size: bool = False) -> tuple[int, ...]:
    """Return the batch sizes for padding: powers of two, and the largest size."""
    if largest < 1:
        raise ArgumentError(f"serve: expected a batch size >= 1; received {largest}")
    powers = [1 << i for i in range(largest.bit_length()) if 1 << i < largest]
    return (largest,) if one_size else (*powers, largest)


class Servable:
    """Function that computes outputs for the rows of a batch.

    A subclass sets `inputs`, `outputs`, `sizes` and `platform`, and defines `run`. Each
    worker thread calls `run`, several in parallel. A batch contains rows of several
    clients, padded with zeros. If output rows depend on other input rows, set
    `takes_whole_batches`; `run` then gets the exact rows of one request.

    Args:
        sizes: the batch sizes to compute, in ascending order.

    Attributes:
        inputs, outputs: their TensorSpecs, in the order of arrays.
        platform: the name of the platform for clients.
        takes_whole_batches: whether each request is computed separately and without
            padding.
        allowed_rows: the allowed numbers of rows in a request; None means any.
        quick_rows: the maximum number of rows whose computation is faster than a
            transfer to a thread, after warm-up.
        notes: sentences about the model that a server logs.

    Example:
        >>> import numpy as np
        >>> from toolkit import serving
        >>> class Doubling(serving.Servable):
        ...     inputs = (serving.TensorSpec("x", "float32", (None, 2)),)
        ...     outputs = (serving.TensorSpec("y", "float32", (None, 2)),)
        ...     def run(self, arrays):
        ...         return [2 * arrays[0]]
        >>> servable = Doubling(sizes=[1, 8])
        >>> servable.warm()
        >>> servable.run([np.ones((1, 2), "float32")])[0].tolist()
        [[2.0, 2.0]]
    """

    platform = "toolkit"
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    takes_whole_batches: bool = False
    allowed_rows: Sequence[int] | None = None

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        self.notes: list[str] = []
        self.quick_rows = 0

    def run(self, arrays: Arrays) -> list[Any]:
        """Return the outputs for arrays whose first axis is one of `sizes`.

        With `takes_whole_batches` it can have any length.

        The caller reuses these arrays. The results must be separate arrays, which later
        calls do not change.

        Args:
            arrays: an array for each input, in their order: (rows, ...).
        """
        raise NotImplementedError(f"{type(self).__name__} does not define `run`")

    def warm(self) -> None:
        """Compute a batch of each size, so that no request waits to compile."""
        if any(None in spec.shape[1:] for spec in self.inputs):
            return
        batches = {n: [zeros(spec, n) for spec in self.inputs] for n in self.sizes}
        for arrays in batches.values():
            self.run(arrays)
        self.quick_rows = 0
        for size, arrays in batches.items():
            if self.takes_whole_batches or self._time_batch(arrays) >= QUICK_SECONDS:
                break
            self.quick_rows = size

    def _time_batch(self, arrays: Arrays) -> float:
        """Return the time of a batch."""
        times: list[float] = []
        while len(times) < 5 and sum(times) < 10 * QUICK_SECONDS:
            start = perf_counter()
            self.run(arrays)
            times.append(perf_counter() - start)
        return min(times)

    def compute(
        self,
        requests: Sequence[Arrays],
        rows: Sequence[int],
        buffers: Buffers,
        check: Callable[[int], None] | None = None,
    ) -> list[list[Any]]:
        """Return the outputs of each of several requests, computed together.

        Args:
            requests: the arrays of each request, which differ only in their first axis.
            rows: the length of that axis for each request.
            buffers: the buffers of the worker, allocated on demand.
            check: a function that receives the output size after each batch; it can
                raise an error to stop.
        """
        if self.takes_whole_batches:
            return [self.run(_align(arrays)) for arrays in requests]
        total, largest = sum(rows), self.sizes[-1]
        if total <= largest:
            outputs = self._run_batch(requests, total, buffers)
        else:
            merged = requests[0]
            if len(requests) > 1:
                merged = [np.concatenate(xs) for xs in zip(*requests, strict=True)]
            chunks, nbytes = [], 0
            for offset in range(0, total, largest):
                chunk = [x[offset : offset + largest] for x in merged]
                chunks.append(
                    self._run_batch([chunk], min(largest, total - offset), buffers)
                )
                nbytes += sum(y.nbytes for y in chunks[-1])
                if check is not None:
                    check(nbytes)
            outputs = [np.concatenate(ys) for ys in zip(*chunks, strict=True)]
        if len(requests) == 1:
            return [outputs]
        results, offset = [], 0
        for count in rows:
            results.append([y[offset : offset + count] for y in outputs])
            offset += count
        return results

    def _run_batch(
        self, requests: Sequence[Arrays], rows: int, buffers: Buffers
    ) -> list[Any]:
        """Return the outputs of one batch, padded with zeros."""
        size = next(n for n in self.sizes if n >= rows)
        if len(requests) == 1 and size == rows:
            return self.run(_align(requests[0]))
        batch = []
        for i, x in enumerate(requests[0]):
            key = (i, size, *x.shape[1:])
            buffer = buffers.get(key)
            if buffer is None:
                if len(buffers) >= MAX_BUFFERS:
                    buffers.clear()
                buffer = buffers[key] = np.empty((size, *x.shape[1:]), x.dtype)
            offset = 0
            for arrays in requests:
                values = arrays[i]
                end = offset + len(values)
                buffer[offset:end] = values
                offset = end
            if offset < size:
                buffer[offset:] = "" if buffer.dtype == object else 0
            batch.append(buffer)
        outputs = self.run(batch)
        return outputs if size == rows else [y[:rows] for y in outputs]


class ModelServable(Servable):
    """Servable of a model's `predict`, compiled for each size if that is possible.

    Args:
        model: a built model.
        batch_size: the maximum batch size.
        one_size: whether every batch is padded to that size, so that results are
            bitwise independent of other clients.

    Raises:
        ArgumentError: the inputs are unknown, or the outputs do not have one row for
            each input row.
        UnsupportedError: an input or output dtype is not supported, or a prediction
            changes the model's state.

    Example:
        >>> import numpy as np
        >>> import toolkit
        >>> model = toolkit.Sequential([toolkit.Input((3,)), toolkit.layers.Dense(2)])
        >>> servable = toolkit.serving.ModelServable(model, batch_size=4)
        >>> [y.shape for y in servable.run([np.ones((4, 3), "float32")])]
        [(4, 2)]
    """

    platform = "toolkit_model"

    def __init__(
        self, model: Any, batch_size: int = 32, one_size: bool = False
    ) -> None:
        try:
            signature = signature_of(model)
        except NotBuiltError as error:
            raise ArgumentError(
                "serve: expected a built model or a model with an Input(); received "
                f"{model.name!r} of {type(model).__name__}"
            ) from error
        fixed_sizes = {x.shape[0] for x in signature.inputs} - {BATCH}
        if len(fixed_sizes) > 1:
            raise ArgumentError(
                "serve: expected one batch size in all inputs; received "
                f"{list(fixed_sizes)}"
            )
        sizes = batch_sizes(batch_size, one_size)
        super().__init__([int(n) for n in fixed_sizes] or sizes)
        self.takes_whole_batches = not _has_independent_rows(
            model, signature, self.sizes[-1]
        )
        if self.takes_whole_batches:
            self.notes.append(
                "each request runs separately, because "
                + (
                    "the rows of a batch can depend on each other"
                    if model._can_compile()
                    else "some layers are Python code, whose rows can depend on each "
                    "other"
                )
            )
            self.allowed_rows = self.sizes if fixed_sizes else None
        self.model = model
        self._structure = signature.structure
        self._is_compiled = model._can_compile() and not model.run_eagerly
        self._programs: dict[Any, ConcreteFunction] = {}
        self.inputs = tuple(
            _tensor_spec(x.name, x.dtype, x.shape) for x in signature.inputs
        )
        names, outputs = _describe_outputs(model, signature, self.sizes[0])
        self.outputs = tuple(
            _tensor_spec(name, y.dtype, y.shape)
            for name, y in zip(names, outputs, strict=True)
        )

    def warm(self) -> None:
        """Compute a batch of each size; see `Servable.warm`.

        A layer of Python code can reject the values of the trial batch. The first
        request is then slower.
        """
        try:
            super().warm()
        except RequestError as error:
            self.notes.append(
                "the first requests are slower, because the model rejects a trial "
                f"batch of zeros and empty texts: {error}"
            )

    def run(self, arrays: Arrays) -> list[Any]:
        """Return the outputs of the model; see `Servable.run`.

        Args:
            arrays: an array for each input, in their order: (rows, ...).
        """
        key = tuple([x.shape for x in arrays])
        program = self._programs.get(key)
        if program is None:
            if not self._is_compiled:
                return self._run_step(arrays)
            program = self._compile(key, arrays)
        return program.call_arrays(arrays)

    def _compile(self, key: Any, arrays: Arrays) -> ConcreteFunction:
        """Return the program for these shapes; threads can compile it twice."""
        function = Function(self._predict, jit_compile=self.model.jit_compile)
        tensors = [convert(np.array(x)) for x in arrays]
        program = function.get_concrete_function(*tensors)
        if program.written_variables:
            changed_variables = ", ".join(
                sorted(v.path for v in program.written_variables)
            )
            raise UnsupportedError(
                f"serve: {self.model.name!r} changes {changed_variables} in its "
                "prediction, so a response would depend on earlier requests"
            )
        self._check_rows([spec.shape for spec in program.specs], len(arrays[0]))
        if len(self._programs) >= MAX_PROGRAMS:
            del self._programs[next(iter(self._programs))]
        self._programs[key] = program
        return program

    def _predict(self, *leaves: Any) -> Any:
        data = tree.pack_sequence_as(self._structure, leaves)
        return tree.flatten(self.model.predict_step(data))

    def _run_step(self, arrays: Arrays) -> list[Any]:
        """Run the predict step, with its layers that are Python code."""
        leaves = [
            _copy_texts(x) if x.dtype == object else convert(np.array(x))
            for x in arrays
        ]
        with restore_on_error():
            step = self.model.make_predict_function()
            try:
                outputs = step(tree.pack_sequence_as(self._structure, leaves))
            except InputError as error:  # a word that is not in a vocabulary, ...
                raise RequestError(400, str(error)) from error
        results = [np.asarray(y) for y in tree.flatten(outputs)]
        self._check_rows([y.shape for y in results], len(arrays[0]))
        return results

    def _check_rows(self, shapes: Sequence[Any], rows: int) -> None:
        for spec, shape in zip(self.outputs, shapes, strict=True):
            if not shape or shape[0] != rows:
                raise ArgumentError(
                    f"serve: expected one row for each of the input's {rows} in output "
                    f"{spec.name!r}; received shape {tuple(shape)}"
                )


def _copy_texts(array: Any) -> Any:
    """Return texts if the size padded to the longest is within the limit."""
    longest = max(map(len, array.flat), default=0)
    if 4 * longest * array.size > MAX_TEXT_BYTES:
        raise RequestError(
            413,
            f"expected texts of <= {MAX_TEXT_BYTES} bytes, where all are as long as "
            "one",
        )
    return array.copy()


def _align(arrays: Arrays) -> Arrays:
    """Binary data in a body can have any alignment."""
    return [x if x.flags.aligned else x.copy() for x in arrays]


def zeros(spec: TensorSpec, rows: int) -> Any:
    """Return zeros of a tensor's dtype and shape, with a given first axis."""
    shape = rows, *spec.shape[1:]
    if spec.dtype == dtypes.STRING:
        return np.full(shape, "", object)
    return np.zeros(shape, dtypes.numpy_dtype(spec.dtype))


def _has_independent_rows(model: Any, signature: Signature, rows: int) -> bool:
    """Return whether a batch can mix rows of several requests and zero padding."""
    if rows == 1 and BATCH not in signature.free_extents:
        return True  # each row is computed separately
    return can_be_batched(
        signature, rows, lambda sizes: _trace_prediction(model, signature, sizes)
    )


def _trace_prediction(model: Any, signature: Signature, sizes: dict[str, int]) -> Graph:
    """Return the graph of `predict_step`, without its side effects."""
    with restore_on_error(), Trace(model.name, creates_variables=False) as trace:
        leaves = [trace.placeholder(x.spec_for(sizes)) for x in signature.inputs]
        outputs = model.predict_step(tree.pack_sequence_as(signature.structure, leaves))
        results = [trace.localize(y) for y in tree.flatten(outputs)]
    return without_gradients(trace.finish(results)).pruned()


def _describe_outputs(
    model: Any, signature: Signature, rows: int
) -> tuple[Sequence[str], Sequence[Any]]:
    """Return the names of a model's outputs, and examples of dtypes and shapes."""
    symbolic_outputs = getattr(model, "outputs", None)
    if symbolic_outputs:
        return output_names(model, model.output), symbolic_outputs
    inference = trace_inference(model, signature, {BATCH: rows})
    return inference.names, [
        y.spec for y in inference.graph.outputs[: len(inference.names)]
    ]


def _tensor_spec(
    name: str, dtype: str, shape: Sequence[int | str | None]
) -> TensorSpec:
    """Return a tensor spec with a variable number of rows."""
    if dtype not in DATATYPES:
        raise UnsupportedError(
            f"serve: {name!r} is of dtype {dtype!r}, which requests do not support; "
            f"expected one of {', '.join(DATATYPES)}"
        )
    extents = [n if isinstance(n, int) else None for n in shape[1:]]
    return TensorSpec(name, dtype, (None, *extents))
