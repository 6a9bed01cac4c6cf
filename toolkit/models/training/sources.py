"""Batches from any data argument of `fit`, with positions that can be saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from itertools import count, islice
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit import data, tree
from toolkit.console.frames import warn
from toolkit.core.composites import has_composites
from toolkit.core.convert import is_strings
from toolkit.core.tensor import Tensor, backend
from toolkit.data.batch_shards import BatchShard
from toolkit.data.randomness import Permutation
from toolkit.data.rows import ArrayRows, BatchedRows, ReorderedRows, Rows
from toolkit.data.specs import known_spec
from toolkit.errors import ArgumentError, unknown_choice
from toolkit.functions.local_rows import BatchSharing, as_full_batch
from toolkit.models.training.arrays import (
    FIELDS,
    as_tensor,
    batch_tensors,
    check_arrays,
    check_class_weight,
    checksum_of,
    count_samples,
    is_arrays,
    mark_strings,
    repeat_weights,
    to_floatx,
    warn_of_absent_classes,
    weights_of_classes,
)
from toolkit.models.training.composites import batches_of_rows
from toolkit.models.training.data_adapters import (
    pack_x_y_sample_weight,
    unpack_x_y_sample_weight,
)
from toolkit.models.training.empty_data import empty_data_error
from toolkit.models.training.nonfinite import Search, search_arrays, search_batches
from toolkit.models.training.py_dataset import PyDataset, count_batches
from toolkit.random.draw_detection import draws_random_numbers
from toolkit.random.seeds import draw_seed
from toolkit.type_aliases import Array

if TYPE_CHECKING:
    from toolkit.models.training.step_functions import Preparation

DEFAULT_BATCH = 32
State = dict[str, Any]


class Source:
    """Base class of sources: consecutive passes over batches.

    Attributes:
        samples: samples of a pass, or None if unknown.
        batch_size: samples per batch, or None if unknown.
        num_batches: batches of a pass, or None if unknown or infinite.
        is_iterator: whether batches cannot be repeated.
        num_taken: the number of batches of this pass that were taken.
    """

    samples: int | None = None
    batch_size: int | None = None
    num_batches: int | None = None
    is_iterator = False
    class_weight: dict[int, float] | None = None
    num_taken: int = 0
    preparation: Preparation | None = None  # for the thread of a pipeline
    _start: State | None = None  # the start of the next pass
    _sharing = BatchSharing()

    def share_batches(self, sharing: BatchSharing) -> None:
        """Share each following batch with other processes."""
        self._sharing = sharing

    def fingerprint(self) -> str | None:
        """Return a fingerprint of the rows and their order, which reads no batch."""
        return None

    def shapes(self) -> list[tuple[int | None, ...]]:
        """Return the shapes of a batch's arrays, with None for extents that vary.

        There are none if they are unknown.
        """
        return []

    def find_nonfinite(self) -> Search:
        """Search the data for NaN, if it can be read again without side effects."""
        return Search()

    def notify(self, hook: str) -> None:
        """Call `on_epoch_begin` or `on_epoch_end` of a data object."""
        method = getattr(getattr(self, "_batches", None), hook, None)
        if callable(method):
            method()

    def epoch(self, steps: int | None = None) -> Iterator[Any]:
        """Return the batches of one pass, with tensors for their arrays.

        Args:
            steps: the maximum number of batches to take from an iterator, which cannot
                rewind.
        """
        start, self._start = self._start or {}, None
        self.num_taken = start.get("taken", 0)
        for batch in self._pass(start, steps):
            self.num_taken += 1
            yield self._local_batch(batch)
        self._sharing.end_pass()

    def _local_batch(self, batch: Any) -> Any:
        """Return the part of a batch that this process needs, as tensors."""
        if type(batch) is BatchShard:
            self._sharing.note_ends(batch.ends)
            return as_full_batch(self._tensors(batch.value), batch.rows)
        return self._sharing.local_batch(self._tensors(batch), batch)

    def state(self, within: bool) -> State | None:
        """Return the state for `restore`, after the last batch that was taken.

        Args:
            within: whether a pass has started that must continue.
        """
        return {"taken": self.num_taken} if within else None

    def restore(self, state: State | None) -> None:
        """Make the next pass start at a `state` of this or another process."""
        self._start = state

    def _pass(self, start: State, steps: int | None) -> Iterator[Any]:
        """Return the batches after the given start."""
        raise NotImplementedError

    def _prepared(self) -> Callable[[object], object] | None:
        """Return the last function of a pipeline in the next pass, if there is one."""
        preparation = self.preparation
        if preparation is None or not preparation.is_worthwhile:
            return None

        def prepared(batch: object) -> object:
            batch = mark_strings(batch)
            with suppress(Exception):  # the step raises it again
                preparation.run(self._tensors(batch))
            return batch

        return prepared

    def _tensors(self, batch: Any) -> Any:
        """Return a batch as tensors: x, or a tuple of its components.

        The steps interpret the components: (x, y, sample_weight), unless they are
        overridden.
        """
        if not isinstance(batch, (tuple, list)):
            return batch_tensors(batch, "x")
        names = FIELDS if len(batch) <= len(FIELDS) else map(str, range(len(batch)))
        components = zip(batch, names, strict=False)
        batch = tuple(
            [batch_tensors(component, name) for component, name in components]
        )
        if self.class_weight is None:
            return batch
        x, y, weights = unpack_x_y_sample_weight(batch)
        weights = as_tensor(weights_of_classes(y, weights, self.class_weight))
        return x, y, weights


class NumberedSource(Source):
    """Base class of sources with batch indices; a key of two words seeds an order."""

    _key: list[int] | None = None

    def __init__(self, shuffle: bool | str) -> None:
        self.shuffle = shuffle

    def state(self, within: bool) -> State | None:
        return {"taken": self.num_taken, "key": self._key} if within else None

    def _pass(self, start: State, steps: int | None) -> Iterator[Any]:
        self._key = start.get("key")
        if self.shuffle and self._key is None:
            self._key = [int(word) for word in draw_seed(None).numpy()]
        key = None if self._key is None else np.array(self._key, np.uint64)
        return self._batches_from(self.num_taken, key)

    def _batches_from(self, first: int, key: Array | None) -> Iterator[Any]:
        """Return the batches from an index on; a key selects a random order."""
        raise NotImplementedError


class ArraySource(NumberedSource):
    """Batches of arrays in memory: rows are gathered, nothing else is copied.

    Args:
        x, y, sample_weight: nests of arrays with one entry per sample.
        batch_size: samples per batch.
        steps: the number of batches, which determines the batch size if that is None.
        shuffle: True for a new order of samples in each pass, "batch" for a new order
            inside each batch.
        class_weight: class -> weight of its samples.
    """

    def __init__(
        self,
        x: Any,
        y: Any,
        sample_weight: Any,
        batch_size: int | None,
        steps: int | None,
        shuffle: bool | str,
        class_weight: dict[int, float] | None,
    ) -> None:
        super().__init__(shuffle)
        pairs = zip(FIELDS, (x, y, sample_weight), strict=True)
        components = {name: check_arrays(component, name) for name, component in pairs}
        self.samples: int
        self.samples = count_samples(components)
        if self.samples == 0:
            raise ArgumentError("expected at least one sample; received empty arrays")
        x, y, weights = components.values()
        if weights is not None and tree.is_nested(y) and not tree.is_nested(weights):
            weights = repeat_weights(weights, y)
        if class_weight is not None:
            weights = weights_of_classes(y, weights, class_weight)
            warn_of_absent_classes(y, class_weight)
        if batch_size is None:
            batch_size = ceil(self.samples / steps) if steps else DEFAULT_BATCH
        if batch_size < 1:
            raise ArgumentError(f"expected batch_size >= 1; received {batch_size}")
        self.batch_size: int
        self._size = self.batch_size = int(batch_size)
        self.num_batches: int
        self._length = self.num_batches = ceil(self.samples / self._size)
        self._structure = pack_x_y_sample_weight(x, y, weights)
        self._is_single_array = not tree.is_nested(self._structure)
        self._is_flat = type(self._structure) is tuple and not any(
            map(tree.is_nested, self._structure)
        )
        leaves = tree.flatten(self._structure)
        self._none_indices = [i for i, leaf in enumerate(leaves) if leaf is None]
        arrays = tuple(leaf for leaf in leaves if leaf is not None)
        self._rows = ArrayRows(arrays, self.samples)
        # Then conversion to tensors needs no check of each batch.
        self._are_numbers = all(
            not is_strings(a) and to_floatx(a[:0]).dtype == a.dtype for a in arrays
        )

    def fingerprint(self) -> str | None:
        return f"rows with the checksum {checksum_of(self._rows):08x}"

    def find_nonfinite(self) -> Search:
        return search_arrays(self._structure)

    def _batches_from(self, first: int, key: Array | None) -> Iterator[Any]:
        rows: Rows = self._rows
        if key is not None:
            rows = ReorderedRows(rows, self.samples, self._order(key).__getitem__)
        batches = BatchedRows(rows, self._size, self._length, self._sharing.rows)
        return batches.iterate(first)

    def _order(self, key: Array) -> Permutation | Array:
        if self.shuffle != "batch":
            return Permutation(key, self.samples)
        draws = np.random.Generator(np.random.Philox(key=key)).random(self.samples)
        batches = np.arange(self.samples) // self._size
        return np.lexsort((draws, batches))

    def _tensors(self, batch: Any) -> Any:
        asarray = backend().memory.asarray
        tensors: list[Any]
        if self._are_numbers:
            tensors = [Tensor(asarray(array)) for array in batch]
        else:
            tensors = [as_tensor(to_floatx(array)) for array in batch]
        for index in self._none_indices:
            tensors.insert(index, None)
        if self._is_single_array:
            return tensors[0]
        if self._is_flat:
            return tuple(tensors)
        return tree.pack_sequence_as(self._structure, tensors)


class SequenceSource(NumberedSource):
    """Batches of an object with `__getitem__`, prefetched.

    Args:
        batches: an object with `__len__` or `num_batches`; without both it is infinite.
        num_batches: the number of batches.
        shuffle: whether to visit them in a new order in each pass.
    """

    def __init__(
        self, batches: Any, num_batches: int | None, shuffle: bool | str
    ) -> None:
        super().__init__(bool(shuffle) and num_batches is not None)
        self._batches = batches
        self.num_batches = num_batches

    def _batches_from(self, first: int, key: Array | None) -> Iterator[Any]:
        number = self.num_batches
        order: Iterable[int] = count(first) if number is None else range(first, number)
        if key is not None and number is not None:
            order = Permutation(key, number)[np.arange(first, number)].tolist()
        if isinstance(self._batches, PyDataset):
            elements = self._batches.fetch(order)
        else:
            elements = (self._batches[number] for number in order)
        with data.prefetched(elements, function=self._prepared()) as batches:
            yield from batches

    def find_nonfinite(self) -> Search:
        if self.num_batches is None:
            return Search()
        return search_batches(self._batches[i] for i in range(self.num_batches))


class IterableSource(Source):
    """Batches of an iterable, or of an iterator, prefetched.

    A resumed pass over an iterable skips the batches that were taken; an iterator
    continues with its next batch.
    """

    def __init__(self, batches: Any, num_batches: int | None) -> None:
        self._batches = batches
        self.is_iterator: bool = hasattr(batches, "__next__")
        self.num_batches = num_batches

    def state(self, within: bool) -> State | None:
        return super().state(within and not self.is_iterator)

    def _pass(self, start: State, steps: int | None) -> Iterator[Any]:
        source, limit = self._batches, steps if self.is_iterator else None
        remaining = islice(source, self.num_taken, None) if self.num_taken else source
        with data.prefetched(remaining, limit, self._prepared()) as batches:
            yield from batches


class DatasetSource(Source):
    """Batches of a Dataset, or of an iterator over one, prefetched."""

    def __init__(self, batches: Any, num_batches: int | None) -> None:
        self._batches = batches
        self.is_iterator: bool = hasattr(batches, "__next__")
        self.num_batches = num_batches
        self._iterator: Any = batches if self.is_iterator else None
        # Whether all rows are produced, even if this process needs only some of them.
        self._produces_all_rows = False

    def share_batches(self, sharing: BatchSharing) -> None:
        super().share_batches(sharing)
        if sharing.rows is not None and not self.is_iterator:
            self._produces_all_rows = draws_random_numbers(self._batches._first_row())

    def fingerprint(self) -> str | None:
        if self.is_iterator:
            return None
        state = self._batches.get_state()
        texts = []
        if any(seed is not None for seed in state["seeds"]):
            texts.append(f"pass {state['passes']} with the seeds {state['seeds']}")
        with suppress(Exception):  # the pass raises it again
            first_row = self._batches._first_row()
            checksum = first_row.source_checksum(not self._produces_all_rows)
            texts.append(f"sources with the checksum {checksum:08x}")
        texts += [
            f"shard{stage._shard}"
            for stage in self._batches._ancestors()
            if stage._shard is not None
        ]
        return f"a Dataset with {' and '.join(texts)}" if texts else None

    def shapes(self) -> list[tuple[int | None, ...]]:
        if self.is_iterator:
            return []
        specs = tree.flatten(known_spec(self._batches))
        shapes: list[Any] = [getattr(spec, "shape", None) for spec in specs]
        return [] if None in shapes else shapes

    def find_nonfinite(self) -> Search:
        if self.is_iterator or _runs_generator(self._batches):
            return Search()
        state = self._batches.get_state()
        try:
            with iter(self._batches) as batches:
                return search_batches(batches)
        finally:
            self._batches.set_state(state)  # later passes do not change

    def state(self, within: bool) -> State | None:
        state: State = {"taken": self.num_taken if within else 0}
        if within or self.is_iterator:
            state["iterator"] = self._iterator.get_state()
        if not self.is_iterator:
            state["dataset"] = self._batches.get_state()
        return state

    def restore(self, state: State | None) -> None:
        super().restore(state)
        self._restore_later(state or {})

    def _restore_later(self, state: State) -> None:
        """Return the index and the seeds of future passes."""
        if "dataset" in state:
            self._batches.set_state(state["dataset"])

    def _pass(self, start: State, steps: int | None) -> Iterator[Any]:
        if not self.is_iterator:
            rows = None if self._produces_all_rows else self._sharing.rows
            self._iterator = self._batches.prefetched(rows, self._prepared())
        if "iterator" in start:
            self._iterator.set_state(start["iterator"])
            self._restore_later(start)  # the state before this pass was opened
        with nullcontext() if self.is_iterator else self._iterator:
            yield from islice(self._iterator, steps if self.is_iterator else None)


def _runs_generator(dataset: data.Dataset) -> bool:
    """Return whether a pass runs a generator, which can wait or change its state."""
    # By name, because `fit` on arrays does not import pipelines.
    return any(stage._name == "from_generator" for stage in dataset._ancestors())


def make_source(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    batch_size: int | None = None,
    steps: int | None = None,
    shuffle: bool | str = False,
    class_weight: dict[int, float] | None = None,
) -> Source:
    """Return the source for any data argument `x`."""
    if shuffle not in (True, False, "batch"):
        raise unknown_choice("shuffle", shuffle, (True, False, "batch"))
    if x is None:
        raise ArgumentError("expected data `x`; received None")
    check_class_weight(class_weight)
    if has_composites(x):
        size = batch_size or DEFAULT_BATCH
        rows = batches_of_rows((x, y, sample_weight), size, bool(shuffle))
        return make_source(rows, steps=steps, class_weight=class_weight)
    if is_arrays(x):
        return ArraySource(
            x, y, sample_weight, batch_size, steps, shuffle, class_weight
        )
    if isinstance(x, (str, bytes)) or not (
        hasattr(x, "__iter__") or hasattr(x, "__getitem__")
    ):
        raise ArgumentError(
            "expected x to be arrays, a generator, or an object with `__iter__`, or "
            f"`__getitem__` and `__len__`, that returns batches; received {x!r:.60} of "
            f"type {type(x).__name__}"
            + ("; use np.array([x])" if isinstance(x, (str, bytes)) else "")
        )
    for name, value in (("y", y), ("sample_weight", sample_weight)):
        if value is not None:
            raise ArgumentError(
                f"expected `{name}` in the batches that x ({type(x).__name__}) "
                "returns; received it as a separate argument"
            )
    if batch_size is not None:
        warn(
            f"batch_size={batch_size} is ignored, because x ({type(x).__name__}) "
            "returns batches; set their size where they are created, for example by "
            f".batch({batch_size})"
        )
    source = _source_of_batches(x, shuffle)
    source.class_weight = class_weight
    return source


def _source_of_batches(batches: Any, shuffle: bool | str) -> Source:
    is_stream = hasattr(batches, "__next__") and not isinstance(batches, PyDataset)
    number = None if is_stream else count_batches(batches)
    if number == 0:
        raise empty_data_error(batches)
    if isinstance(batches, (data.Dataset, data.DatasetIterator)):
        # Use the full data set: the source selects the rows of this process.
        return DatasetSource(getattr(batches, "global_batches", batches), number)
    countable = number is not None or not hasattr(batches, "__iter__")
    if countable and hasattr(batches, "__getitem__"):
        return SequenceSource(batches, number, shuffle)
    return IterableSource(batches, number)
