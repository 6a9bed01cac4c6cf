"""Stages that combine elements into batches, and split batches into elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from toolkit.data.batch_shards import (
    RowSelector,
    Selection,
    rows_to_read,
    shard_of_batch,
)
from toolkit.data.dataset import UNKNOWN_CARDINALITY, Dataset, transformation
from toolkit.data.padding import Ragged, as_ragged, pad
from toolkit.data.parallel_stream import ParallelStream
from toolkit.data.randomness import pass_draws
from toolkit.data.rows import BatchedRows, RangeRows, Rows
from toolkit.data.specs import batch_spec, change_spec, padded_spec
from toolkit.data.streams import PassContext, RowStream, Stream
from toolkit.data.structure import (
    TensorSpec,
    flatten_argument,
    leaves,
    map_leaves,
    merge,
    numpy_dtype,
    rebuild_structure,
    stack_elements,
    stack_values,
)
from toolkit.data.tuning import Knob, check_workers
from toolkit.errors import ArgumentError, ShapeError, unknown_choice


def check_batch_size(stage: str, size: int) -> int:
    """Return a valid batch size or raise an error."""
    if size < 1:
        raise ArgumentError(f"{stage}: expected batch_size >= 1; received {size}")
    return int(size)


class _Batched(Dataset):
    """Base class of stages that combine consecutive elements into one."""

    def __init__(self, dataset: Dataset, batch_size: int, drop_remainder: bool) -> None:
        super().__init__(dataset)
        self._size = check_batch_size(self._name, batch_size)
        self._drops = drop_remainder

    def _detail(self) -> str:
        return str(self._size)

    def _cardinality(self) -> int:
        count = self._parents[0]._cardinality()
        if count < 0:
            return count
        return count // self._size if self._drops else -(-count // self._size)

    def _merged(self, elements: list[Any]) -> Any:
        raise NotImplementedError

    def _stream(self, context: PassContext) -> Stream:
        return _BatchStream(self, context, context.open(self._parents[0]))

    def _leading(self) -> int | None:
        return self._size if self._drops else None


class _BatchStream(Stream):
    def __init__(
        self,
        dataset: _Batched,
        context: PassContext,
        parent: Stream,
        merged: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        super().__init__(dataset, context, parent)
        self._merged = merged or dataset._merged
        self._size, self._drops = dataset._size, dataset._drops

    def elements(self) -> Iterator[Any]:
        for elements in self.parent.chunks(self._size):
            if len(elements) < self._size and self._drops:
                return
            yield self._merged(elements)


class _StackStream(Stream):
    """Stream of batches; the parent stream can have a faster way to stack them."""

    def __init__(self, dataset: _Batched, context: PassContext, parent: Stream) -> None:
        super().__init__(dataset, context, parent)
        self._size, self._drops = dataset._size, dataset._drops

    def elements(self) -> Iterator[Any]:
        return self.parent.stacked(self._size, self._drops)


@transformation("batch")
class Batch(_Batched):
    """Batches of consecutive elements, stacked along a new first axis.

    Args:
        batch_size: the number of elements in a batch. The last batch can be smaller.
        drop_remainder: whether to drop a last batch that is not full.
        num_parallel_calls: the number of batches to assemble in parallel, each in one
            thread. AUTOTUNE selects the number.
        deterministic: whether to keep the order of the batches. None uses the options
            of the data set.

    Raises:
        ShapeError: values of a batch differ in shape (see `padded_batch`,
            `ragged_batch`).

    Example:
        >>> from toolkit.data import Dataset
        >>> [x.tolist() for x in Dataset.range(5).batch(2)]
        [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> None:
        super().__init__(dataset, batch_size, drop_remainder)
        check_workers("batch", num_parallel_calls)
        self._workers, self._deterministic = num_parallel_calls, deterministic

    def _rows(self, context: PassContext) -> Rows | None:
        return None if self._workers is not None else self._batches(context)

    def _batches(self, context: PassContext) -> BatchedRows | None:
        rows = context.rows(self._parents[0])
        if rows is None:
            return None
        count = len(rows) // self._size if self._drops else -(-len(rows) // self._size)
        return BatchedRows(
            rows, self._size, count, context.run.shard_selectors.get(self)
        )

    def _merged(self, elements: list[Any]) -> Any:
        return stack_elements(elements)

    def _merge_function(self, context: PassContext) -> Callable[[list[Any]], Any]:
        """Return a function that merges elements: all rows, or the local shard."""
        rows = context.run.shard_selectors.get(self)
        if rows is None:
            return self._merged
        return partial(self._shared, rows, self._find_selected(context) is None)

    def _shared(self, rows: RowSelector, is_complete: bool, elements: list[Any]) -> Any:
        """Merge the local rows of elements, which are complete or partly absent."""
        local_rows = rows(len(elements))
        read = rows_to_read(local_rows)
        merged = self._merged(elements[read.start : read.stop])
        ends = (elements[0], elements[-1]) if is_complete else None
        return shard_of_batch(len(elements), local_rows, merged, ends)

    def _open(self, context: PassContext) -> Stream:
        """Open the elements; elements outside the local shard can be skipped."""
        selector = context.run.shard_selectors.get(self)
        rows = self._find_selected(context)
        if selector is not None and rows is not None:
            selection = Selection(self._size, len(rows), selector)
            context = context._replace(selection=selection)
        return context.open(self._parents[0])

    def _find_selected(self, context: PassContext) -> Rows | None:
        """Return the rows of which a process skips those of other processes."""
        return self._aligned_rows(context) if context.on_error is None else None

    def _aligned_rows(self, context: PassContext) -> Rows | None:
        """Return random access to elements with the indices of the input, or None."""
        stage: Dataset | None = self._parents[0]
        while stage is not None:
            rows = context.rows(stage)
            if rows is not None:
                return rows
            stage = stage._aligned_input(context)
        return None

    def _can_skip_rows(self, context: PassContext) -> bool:
        return self._aligned_rows(context) is not None

    def _stream(self, context: PassContext) -> Stream:
        merged = self._merge_function(context)
        if self._workers is None and self not in context.run.shard_selectors:
            return _StackStream(self, context, self._open(context))
        if self._workers is None:
            return _BatchStream(self, context, self._open(context), merged)
        options, deterministic = context.run.options, self._deterministic
        workers = Knob.of(self._workers, options)
        is_ordered = options.is_ordered if deterministic is None else deterministic
        batches, nested_context = (
            self._batches(context),
            context._replace(enclosing_stage=self),
        )
        if batches is not None:
            numbers = RowStream(self, nested_context, RangeRows(range(len(batches))))
            return ParallelStream(
                *(self, context, numbers, batches.__getitem__, workers),
                ordered=is_ordered,
                elements=pass_draws(context.epoch),
            )
        lists = _BatchStream(self, nested_context, self._open(context), list)
        return ParallelStream(self, context, lists, merged, workers, ordered=is_ordered)

    def _spec(self) -> Any:
        return change_spec(
            self._parents[0], lambda spec: batch_spec(spec, self._leading())
        )


@transformation("padded_batch")
class PaddedBatch(_Batched):
    """Batches of consecutive elements, with values padded to equal shapes.

    Args:
        batch_size: the number of elements in a batch.
        padded_shapes: the padded shape of each value, with the structure of an element.
            None or -1 pads an extent to the longest value of the batch. None as the
            whole argument does this for all extents.
        padding_values: the padding values, with the structure of an element, or one
            value for all. None pads with 0 or the empty string.
        drop_remainder: whether to drop a last batch that is not full.

    Raises:
        ShapeError: a value is longer than its padded shape.

    Example:
        >>> import numpy as np
        >>> from toolkit.data import Dataset
        >>> rows = Dataset.range(1, 4).map(lambda n: np.full(n, n))
        >>> next(iter(rows.padded_batch(3))).tolist()
        [[1, 0, 0], [2, 2, 0], [3, 3, 3]]
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
    ) -> None:
        super().__init__(dataset, batch_size, drop_remainder)
        self._shapes, self._fill = padded_shapes, padding_values

    def _merged(self, elements: list[Any]) -> Any:
        return merge_padded(elements, self._shapes, self._fill)

    def _spec(self) -> Any:
        return padded_spec(self._parents[0]._spec(), self._shapes, self._leading())


def merge_padded(elements: list[Any], shapes: Any, fill: Any) -> Any:
    """Return elements merged into one, padded to a structure of shapes."""
    first = elements[0]
    if not isinstance(first, (tuple, dict)):
        return pad(elements, shapes, fill)
    shapes_per_leaf = flatten_argument(first, shapes, "padded_batch: padded_shapes")
    fills = [fill] * len(first)
    if isinstance(fill, (tuple, list, dict)):
        fills = flatten_argument(first, fill, "padded_batch: padding_values")
    keys = first if isinstance(first, dict) else range(len(first))
    columns = [[element[key] for element in elements] for key in keys]
    return rebuild_structure(
        first, list(map(merge_padded, columns, shapes_per_leaf, fills))
    )


@transformation("ragged_batch")
class RaggedBatch(_Batched):
    """Batches of consecutive elements whose rows can differ in length.

    Args:
        batch_size: the number of elements in a batch.
        drop_remainder: whether to drop a last batch that is not full.
        row_splits_dtype: the dtype of the row splits: int64 or int32.

    Example:
        >>> import numpy as np
        >>> from toolkit.data import Dataset
        >>> rows = Dataset.range(1, 4).map(lambda n: np.full(n, n))
        >>> next(iter(rows.ragged_batch(3))).to_list()
        [[1], [2, 2], [3, 3, 3]]
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        drop_remainder: bool = False,
        row_splits_dtype: Any = "int64",
    ) -> None:
        super().__init__(dataset, batch_size, drop_remainder)
        splits = numpy_dtype(row_splits_dtype)
        if splits not in ("int32", "int64"):
            raise unknown_choice("row_splits_dtype", splits.name, ("int32", "int64"))
        self._join = partial(as_ragged, splits=splits)

    def _merged(self, elements: list[Any]) -> Any:
        return merge(self._join, elements, "ragged_batch")

    def _spec(self) -> Any:
        def ragged(spec: TensorSpec) -> TensorSpec:
            rows = (None, *spec.shape[1:]) if spec.shape else spec.shape
            return batch_spec(replace(spec, shape=rows), self._leading())

        return change_spec(self._parents[0], ragged)


@transformation("unbatch")
class Unbatch(Dataset):
    """The rows of each element as separate elements.


    Example:
        >>> from toolkit.data import Dataset
        >>> [int(x) for x in Dataset.range(4).batch(3).unbatch()]
        [0, 1, 2, 3]
    """

    def __init__(self, dataset: Dataset) -> None:
        super().__init__(dataset)

    def _cardinality(self) -> int:
        batches = self._parents[0]
        if not isinstance(batches, _Batched):
            return UNKNOWN_CARDINALITY
        count = batches._parents[0]._cardinality()
        return count - count % batches._size if batches._drops and count > 0 else count

    def _stream(self, context: PassContext) -> Stream:
        return _UnbatchStream(self, context, context.open(self._parents[0]))

    def _spec(self) -> Any:
        def row(spec: TensorSpec) -> TensorSpec:
            return replace(spec, shape=spec.shape and spec.shape[1:])

        return change_spec(self._parents[0], row)


def _row_at(number: int, value: Any) -> Any:
    return None if value is None else value[number]


class _UnbatchStream(Stream):
    """Stream of rows; its state stores a partly consumed element in full."""

    fields = ("position", "batch")

    def __init__(self, dataset: Unbatch, context: PassContext, parent: Stream) -> None:
        super().__init__(dataset, context, parent)
        self.position = 0
        self.batch: Any = None

    def elements(self) -> Iterator[Any]:
        if self.batch is not None:
            yield from self._remaining_rows()
        for batch in self.parent:
            self.batch, self.position = batch, 0
            yield from self._remaining_rows()

    def _remaining_rows(self) -> Iterator[Any]:
        values = [value for value in leaves(self.batch) if value is not None]
        are_rows = (isinstance(value, Ragged) or np.ndim(value) for value in values)
        if not values or not all(are_rows):
            raise ShapeError("unbatch: expected values with rows; received a scalar")
        lengths = {len(value) for value in values}
        if len(lengths) != 1:
            raise ShapeError(
                "unbatch: expected values with the same number of rows; received "
                f"{sorted(lengths)}"
            )
        for row in range(self.position, lengths.pop()):
            self.position = row + 1
            yield map_leaves(partial(_row_at, row), self.batch)
        self.batch = None


@transformation("rebatch")
class Rebatch(Dataset):
    """Batches of a different size with the same rows.

    Args:
        batch_size: the number of rows in a batch, or a list of sizes to cycle through.
        drop_remainder: whether to drop a last batch that is not full.

    Example:
        >>> from toolkit.data import Dataset
        >>> [x.tolist() for x in Dataset.range(5).batch(4).rebatch(2)]
        [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int | Sequence[int],
        drop_remainder: bool = False,
    ) -> None:
        super().__init__(dataset.unbatch())
        sizes = list(batch_size) if isinstance(batch_size, Sequence) else [batch_size]
        self._sizes = [check_batch_size("rebatch", size) for size in sizes]
        self._drops = drop_remainder

    def _stream(self, context: PassContext) -> Stream:
        return _RebatchStream(self, context, context.open(self._parents[0]))

    def _spec(self) -> Any:
        is_known = self._drops and len(set(self._sizes)) == 1
        first = self._sizes[0] if is_known else None
        return change_spec(self._parents[0], lambda spec: batch_spec(spec, first))


class _RebatchStream(Stream):
    fields = ("index",)

    def __init__(self, dataset: Rebatch, context: PassContext, parent: Stream) -> None:
        super().__init__(dataset, context, parent)
        self._sizes, self._drops = dataset._sizes, dataset._drops
        self.index = 0

    def elements(self) -> Iterator[Any]:
        source = iter(self.parent)
        while True:
            size = self._sizes[self.index]
            rows = list(islice(source, size))
            if not rows or (len(rows) < size and self._drops):
                return
            self.index = (self.index + 1) % len(self._sizes)
            yield merge(stack_values, rows, "rebatch")
