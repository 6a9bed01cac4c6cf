"""Data sets of toolkit from data of Ray Data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from toolkit import comm
from toolkit.arguments import check_arguments
from toolkit.data import Dataset
from toolkit.distribution import distribution
from toolkit.errors import ArgumentError, ArgumentTypeError, MissingKeyError
from toolkit.type_aliases import Array


@check_arguments
def dataset(
    shard: Any,
    batch_size: int,
    *,
    features: str | Sequence[str] | None = None,
    labels: str | None = None,
    drop_last: bool = False,
    prefetch_batches: int = 1,
    shuffle_buffer_size: int | None = None,
    seed: int | None = None,
) -> Dataset:
    """Return a data set of the batches of a shard of Ray Data.

    In a worker of `toolkit.ray.Trainer` the shard is the result of
    `ray.train.get_dataset_shard`, and each worker reads only its rows. So the batch
    size is the number of rows of this worker, and the distribution needs
    `auto_shard_dataset=False`. All workers need the same number of rows: the default
    `DataConfig` of Ray drops the rows that remain. Each pass over the data set is a
    pass of Ray over its data, which all workers start together.

    Args:
        shard: a `ray.data.DataIterator`, or a `ray.data.Dataset`.
        batch_size: the number of rows of a batch of this worker, at least 1.
        features: the column that is x of `fit`, or columns for a dict. None: an element
            is a dict of all columns.
        labels: the column that is y of `fit`. It needs `features`.
        drop_last: whether to drop a last batch with fewer rows.
        prefetch_batches: the number of batches that Ray prepares in advance.
        shuffle_buffer_size: the minimum number of rows from which Ray draws the rows of
            a batch. None: the rows are in the order of Ray.
        seed: the seed of these draws.

    Returns:
        A Dataset of dicts of arrays with the shape (rows, ...), or of x, or of (x, y).

    Raises:
        ArgumentError: an argument is out of range, or a distribution would divide the
            rows of the shard again.
        ArgumentTypeError: the shard has no batches.
        MissingKeyError: the shard has no column of that name.

    Example:
        >>> import numpy as np
        >>> import toolkit
        >>> class Shard:  # ray.train.get_dataset_shard("train") in a worker
        ...     def iter_batches(self, *, batch_size, **options):
        ...         yield {"x": np.ones((batch_size, 3)), "y": np.ones(batch_size)}
        >>> data = toolkit.ray.dataset(Shard(), 2, features="x", labels="y")
        >>> [(x.shape, y.shape) for x, y in data]
        [((2, 3), (2,))]
    """
    if not callable(getattr(shard, "iter_batches", None)):
        raise ArgumentTypeError(
            "dataset: expected a shard of Ray Data, such as the result of "
            f"ray.train.get_dataset_shard('train'); received {shard!r}. In Trainer, "
            "pass the data as datasets={'train': ...}"
        )
    for name, value, minimum in (
        ("batch_size", batch_size, 1),
        ("prefetch_batches", prefetch_batches, 0),
        ("shuffle_buffer_size", shuffle_buffer_size, 1),
    ):
        if value is not None and value < minimum:
            raise ArgumentError(
                f"dataset: expected {name} of at least {minimum}; received {value!r}"
            )
    if labels is not None and features is None:
        raise ArgumentError(
            f"dataset: labels={labels!r} needs `features`, the column that is x"
        )
    options = {
        "batch_size": batch_size,
        "drop_last": drop_last,
        "prefetch_batches": prefetch_batches,
        "local_shuffle_buffer_size": shuffle_buffer_size,
        "local_shuffle_seed": seed,
    }

    def generate() -> Iterator[object]:
        _refuse_second_division(shard)
        # In its default format a batch is a dict of arrays.
        for columns in shard.iter_batches(**options):
            arrays = {name: np.asarray(column) for name, column in columns.items()}
            yield _select(arrays, features, labels)

    return Dataset.from_generator(generate)


def _refuse_second_division(shard: object) -> None:
    """Raise an error if each worker would train on a part of its shard only."""
    strategy = distribution()
    world_size = getattr(shard, "world_size", lambda: 1)
    is_divided = comm.world().size > 1 and world_size() > 1
    if is_divided and strategy is not None and strategy.auto_shard_dataset:
        raise ArgumentError(
            "dataset: expected a distribution with auto_shard_dataset=False, because "
            "Ray has divided the rows already; received auto_shard_dataset=True, which "
            "would use only a part of each shard"
        )


def _select(
    arrays: dict[str, Any], features: str | Sequence[str] | None, labels: str | None
) -> Any:
    """Return the element of a batch: a dict, x, or (x, y)."""
    if features is None:
        return arrays

    def column(name: str) -> Array:
        if name not in arrays:
            raise MissingKeyError(
                f"dataset: expected one of the columns {sorted(arrays)}; received "
                f"{name!r}"
            )
        return arrays[name]

    if isinstance(features, str):
        x: Any = column(features)
    else:
        x = {name: column(name) for name in features}
    return x if labels is None else (x, column(labels))
