"""Infinite batches of images, as in Keras 2.

Random numbers are from NumPy's global generator, in the order of Keras: with the same
seed a script gets the same batches.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator as Generator, Sequence
from typing import Any, Self

import numpy as np

from toolkit import dtypes
from toolkit.arguments import is_int
from toolkit.console.frames import warn
from toolkit.errors import ArgumentError, OutOfRangeError, ShapeError, unknown_choice
from toolkit.settings import floatx, standardize_data_format
from toolkit.type_aliases import Array, TensorLike
from toolkit.utils import PyDataset
from toolkit.utils.images import array_to_img

SUBSETS = ("training", "validation")


class Iterator(PyDataset):
    """Base of the iterators over images: batches by index, or in sequence.

    A subclass defines `_get_batches_of_transformed_samples(index_array)`, which returns
    the batch of some samples.

    Args:
        n: the number of samples.
        batch_size: samples in a batch; the last batch of a pass can be smaller.
        shuffle: whether to shuffle in each pass.
        seed: of order and transformations; None does not set NumPy's global generator.
        **kwargs: `workers`, `use_multiprocessing`, `max_queue_size` of `PyDataset`.

    Raises:
        ArgumentError: if n or batch_size are invalid.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> Iterator = tf.keras.preprocessing.image.Iterator
        >>> class Numbers(Iterator):
        ...     def _get_batches_of_transformed_samples(self, index_array):
        ...         return index_array.tolist()
        >>> numbers = Numbers(3, batch_size=2, shuffle=False, seed=None)
        >>> len(numbers), [next(numbers) for _ in range(3)]
        (2, [[0, 1], [2], [0, 1]])
    """

    white_list_formats: tuple[str, ...] = (
        *("png", "jpg", "jpeg", "bmp", "ppm", "tif", "tiff"),
    )
    dtype: str
    data_format: str
    image_data_generator: Any
    save_to_dir: Any
    save_prefix: str
    save_format: str

    def __init__(
        self, n: int, batch_size: int, shuffle: bool, seed: int | None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if not is_int(batch_size) or batch_size < 1:
            raise ArgumentError(
                f"{type(self).__name__}: batch_size must be an integer >= 1; received "
                f"{batch_size!r}"
            )
        self.n = n
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self.batch_index = 0
        self.total_batches_seen = 0
        self.index_array: Any = None
        self.lock = threading.Lock()
        self.index_generator = self._flow_index()

    def __getstate__(self) -> dict[str, Any]:
        # These attributes cannot be pickled for a worker process.
        left_out = ("lock", "index_generator")
        return {k: v for k, v in vars(self).items() if k not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.lock = threading.Lock()
        self.index_generator = self._flow_index()

    def __len__(self) -> int:
        return -(-self.n // self.batch_size)

    def __getitem__(self, index: int) -> Any:
        """Return the batch with this index in the order of the current pass."""
        if not 0 <= index < len(self):
            raise OutOfRangeError(
                f"{type(self).__name__}: expected the number of a batch, at least 0 "
                f"and less than {len(self)}; received {index}"
            )
        self._seed_batch()
        self.total_batches_seen += 1
        if self.index_array is None:
            self._set_index_array()
        first = self.batch_size * index
        rows = self.index_array[first : first + self.batch_size]
        return self._get_batches_of_transformed_samples(rows)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        """Return the next batch; after the last batch a new pass starts."""
        with self.lock:
            rows = next(self.index_generator)
        return self._get_batches_of_transformed_samples(rows)

    def next(self) -> Any:
        """Return the next batch, as `next(self)`."""
        return next(self)

    def reset(self) -> None:
        """Start a new pass with the next batch."""
        self.batch_index = 0

    def on_epoch_end(self) -> None:
        """Shuffle again, if enabled."""
        self._set_index_array()

    def _set_index_array(self) -> None:
        if self.shuffle:
            self.index_array = np.random.permutation(self.n)
        else:
            self.index_array = np.arange(self.n)

    def _seed_batch(self) -> None:
        if self.seed is not None:
            np.random.seed(self.seed + self.total_batches_seen)

    def _flow_index(self) -> Generator[Array]:
        """Yield the sample indices of each batch."""
        self.reset()
        while True:
            self._seed_batch()
            if self.batch_index == 0:
                self._set_index_array()
            # `reset`, or a smaller n, is possible between two batches.
            first = self.batch_index * self.batch_size % self.n if self.n else 0
            is_last = first + self.batch_size >= self.n
            self.batch_index = 0 if is_last else self.batch_index + 1
            self.total_batches_seen += 1
            yield self.index_array[first : first + self.batch_size]

    def _get_batches_of_transformed_samples(self, index_array: Array) -> Any:
        """Return the batch of the samples with these indices; a subclass defines it."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define _get_batches_of_transformed_samples"
        )

    def _transform(self, x: Array) -> Any:
        """Transform an image at random and standardize it with the generator."""
        generator = self.image_data_generator
        if generator is None:
            return x
        changes = generator.get_random_transform(x.shape)
        return generator.standardize(generator.apply_transform(x, changes))

    def _save(self, batch: Array, rows: Array, numbers: int) -> None:
        """Save the images of a batch, if there is a folder for them.

        `numbers` is the range of the random part of a file name.
        """
        if not self.save_to_dir:
            return
        for x, row in zip(batch, rows, strict=True):
            image = array_to_img(x, self.data_format, scale=True)
            suffix = np.random.randint(numbers)
            name = f"{self.save_prefix}_{row}_{suffix}.{self.save_format}"
            image.save(os.path.join(self.save_to_dir, name))


class NumpyArrayIterator(Iterator):
    """Batches of the images in an array, see `ImageDataGenerator.flow`.

    Args:
        x: images (samples, height, width, channels), channels second if
            "channels_first"; or a pair of images and one or a list of further arrays,
            which do not change.
        y: an array with one target per image; None: batches have no targets.
        image_data_generator: transforms each image; None for no transformation.
        batch_size: images in a batch.
        shuffle: whether to shuffle in each pass.
        sample_weight: an array with one weight per image, which needs y. A subset uses
            the weights of its images, while Keras gives the weights of the first rows
                to
            both parts.
        seed: of order and transformations.
        data_format: "channels_last", "channels_first", or None for the global default.
        save_to_dir: a folder for the images of each batch; None: they are not saved.
        save_prefix: the prefix of these file names.
        save_format: the suffix of these file names, for example "png".
        subset: "training" or "validation": the part by the generator's
            `validation_split`, whose first images are for validation.
        ignore_class_split: whether both parts can have different targets.
        dtype: of the images; None: floatx.

    Raises:
        ArgumentError: if lengths or the classes of both parts differ.
        ShapeError: if x does not have four axes.

    Example:
        >>> import numpy as np
        >>> import toolkit.compat.tensorflow as tf
        >>> NumpyArrayIterator = tf.keras.preprocessing.image.NumpyArrayIterator
        >>> batches = NumpyArrayIterator(np.ones((5, 4, 4, 3)), np.arange(5), None, 2)
        >>> x, y = batches[2]
        >>> x.shape, y.tolist()
        ((1, 4, 4, 3), [4])
    """

    def __init__(
        self,
        x: Any,
        y: Any,
        image_data_generator: Any,
        batch_size: int = 32,
        shuffle: bool = False,
        sample_weight: Any = None,
        seed: int | None = None,
        data_format: str | None = None,
        save_to_dir: Any = None,
        save_prefix: str = "",
        save_format: str = "png",
        subset: str | None = None,
        ignore_class_split: bool = False,
        dtype: Any = None,
    ) -> None:
        self.dtype = dtypes.standardize(dtype or floatx())
        self.data_format = standardize_data_format(data_format)
        self.image_data_generator = image_data_generator
        self.save_to_dir = save_to_dir
        self.save_prefix, self.save_format = save_prefix, save_format
        images, extra_arrays = _split_arrays(x)
        targets = None if y is None else np.asarray(y)
        weights = None if sample_weight is None else np.asarray(sample_weight)
        _check_lengths(images, [*extra_arrays, targets, weights])
        if weights is not None and targets is None:
            raise ArgumentError(
                "NumpyArrayIterator: sample_weight is for samples with targets; "
                "received y=None"
            )
        if subset is not None:
            split = self._split(subset, len(images))
            if targets is not None and not ignore_class_split:
                _check_classes(targets, split)
            rows = split[SUBSETS.index(subset)]
            images = images[rows]
            targets = None if targets is None else targets[rows]
            extra_arrays = [other[rows] for other in extra_arrays]
            weights = None if weights is None else weights[rows]
        self.x = np.asarray(images, dtype=dtypes.numpy_dtype(self.dtype))
        self.x_misc, self.y, self.sample_weight = extra_arrays, targets, weights
        self._check_images()
        super().__init__(len(self.x), batch_size, shuffle, seed)

    def _split(self, subset: str, count: int) -> tuple[slice, slice]:
        """Return the slices of the training images and of the validation images."""
        if subset not in SUBSETS:
            raise unknown_choice("NumpyArrayIterator: subset", subset, SUBSETS)
        border = int(count * self.image_data_generator._validation_split)
        return slice(border, None), slice(border)

    def _check_images(self) -> None:
        if self.x.ndim != 4:
            raise ShapeError(
                "NumpyArrayIterator: expected images with four axes in all; received "
                f"shape {self.x.shape}"
            )
        warn_of_channels("NumpyArrayIterator", self.x.shape, self.data_format)

    def _get_batches_of_transformed_samples(self, index_array: Array) -> Any:
        batch = np.zeros((len(index_array), *self.x.shape[1:]), self.x.dtype)
        for i, row in enumerate(index_array):
            batch[i] = self._transform(self.x[row].copy())
        self._save(batch, index_array, 10_000)
        extra_arrays = [other[index_array] for other in self.x_misc]
        x: Any = [batch, *extra_arrays] if extra_arrays else batch
        if self.y is None:
            return x
        if self.sample_weight is None:
            return x, self.y[index_array]
        return x, self.y[index_array], self.sample_weight[index_array]


def warn_of_channels(caller: str, shape: Sequence[int], data_format: str) -> None:
    """Warn if the extent of the channel axis is unusual."""
    axis = 3 if data_format == "channels_last" else 1
    if shape[axis] not in (1, 3, 4):
        warn(
            f"{caller}: expected 1, 3 or 4 channels on axis {axis}, as images with "
            f"{data_format!r} have; received shape {tuple(shape)}"
        )


def _split_arrays(x: TensorLike) -> tuple[Array, list[Array]]:
    """Return the images, and the further arrays."""
    if not isinstance(x, (tuple, list)):
        return np.asarray(x), []
    if len(x) != 2:
        raise ArgumentError(
            "NumpyArrayIterator: expected x to be an array, or a pair of an array "
            f"and further arrays; received a {type(x).__name__} of {len(x)}"
        )
    extra_arrays = x[1] if isinstance(x[1], list) else [x[1]]
    return np.asarray(x[0]), [np.asarray(other) for other in extra_arrays]


def _check_lengths(images: Array, arrays: list[Array | None]) -> None:
    for other in arrays:
        if other is not None and len(other) != len(images):
            raise ArgumentError(
                "NumpyArrayIterator: x, its further arrays, y and sample_weight must "
                f"have one length; received shapes {images.shape} and {other.shape}"
            )


def _check_classes(targets: Array, split: tuple[slice, slice]) -> None:
    """Raise if validation has other targets than training."""
    training, validation = (np.unique(targets[rows]) for rows in split)
    if not np.array_equal(training, validation):
        raise ArgumentError(
            "NumpyArrayIterator: expected the same values of y for training and "
            f"validation; received {len(training)} and {len(validation)} different "
            "ones. Shuffle x and y first, or set ignore_class_split=True"
        )
