# Written by scripts/write_stubs; do not edit.
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from toolkit.data.array_sources import Path_
from toolkit.data.dataset import Dataset
from toolkit.data.options import Options

class Methods:
    def assert_cardinality(
        self, expected_cardinality: int, *, name: str | None = None
    ) -> Dataset:
        """The same elements with a known cardinality, for example after a generator."""
    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        *,
        name: str | None = None,
    ) -> Dataset:
        """Batches of consecutive elements, stacked along a new first axis."""
    def bucket_by_sequence_length(
        self,
        element_length_func: Callable[..., int],
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int],
        padded_shapes: Any = None,
        padding_values: Any = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
        *,
        name: str | None = None,
    ) -> Dataset:
        """Batches of elements of similar lengths, to reduce padding."""
    def cache(
        self, filename: str | os.PathLike[str] = "", *, name: str | None = None
    ) -> Dataset:
        """A cache of the elements, filled in the first pass."""
    @staticmethod
    def choose_from_datasets(
        datasets: Sequence[Dataset],
        choice_dataset: Dataset,
        stop_on_empty_dataset: bool = True,
        *,
        name: str | None = None,
    ) -> Dataset:
        """Elements of the data sets selected by a data set of indices."""
    def concatenate(self, dataset: Dataset, *, name: str | None = None) -> Dataset:
        """The elements of this data set followed by the elements of another."""
    @staticmethod
    def counter(
        start: int = 0, step: int = 1, dtype: Any = "int64", *, name: str | None = None
    ) -> Dataset:
        """An infinite sequence of numbers with a constant step."""
    def enumerate(self, start: int = 0, *, name: str | None = None) -> Dataset:
        """Each element with its index: (index, element)."""
    def filter(
        self, predicate: Callable[..., Any], *, name: str | None = None
    ) -> Dataset:
        """The elements for which a predicate is true."""
    def flat_map(
        self, map_func: Callable[..., Dataset], *, name: str | None = None
    ) -> Dataset:
        """Elements of the data sets that a function returns for each element."""
    @staticmethod
    def from_generator(
        generator: Callable[..., Iterable[Any]],
        output_types: Any = None,
        output_shapes: Any = None,
        args: tuple[Any, ...] | None = None,
        output_signature: Any = None,
        *,
        name: str | None = None,
    ) -> Dataset:
        """The elements of a generator; each pass calls its function again."""
    @staticmethod
    def from_hdf5(path: Path_, keys: Any = None, *, name: str | None = None) -> Dataset:
        """The rows of HDF5 data sets, read in whole chunks with a small cache."""
    @staticmethod
    def from_image_folder(
        directory: Path_,
        image_size: tuple[int, int] | None = None,
        color_mode: str = "rgb",
        *,
        name: str | None = None,
    ) -> Dataset:
        """(pixels, label) of the images in a folder with one subfolder for each class."""
    @staticmethod
    def from_items(items: Any, *, name: str | None = None) -> Dataset:
        """The items of an object with `__getitem__` and `__len__`."""
    @staticmethod
    def from_npy(paths: Any, *, name: str | None = None) -> Dataset:
        """The rows of memory-mapped arrays in .npy files."""
    @staticmethod
    def from_npz(path: Path_, keys: Any = None, *, name: str | None = None) -> Dataset:
        """The rows of the arrays of an .npz file, as dicts; the arrays are loaded at once."""
    @staticmethod
    def from_tensor_slices(tensors: Any, *, name: str | None = None) -> Dataset:
        """The rows of arrays, without a copy: an element is a row of each array."""
    @staticmethod
    def from_tensors(tensors: Any, *, name: str | None = None) -> Dataset:
        """One element: the given value."""
    def group_by_window(
        self,
        key_func: Callable[..., Any],
        reduce_func: Callable[[Any, Dataset], Dataset],
        window_size: int | None = None,
        window_size_func: Callable[[Any], int] | None = None,
        *,
        name: str | None = None,
    ) -> Dataset:
        """Results of a reduction of each group of elements with the same key."""
    def ignore_errors(
        self,
        log_warning: bool = False,
        log: Callable[[str], Any] | None = None,
        *,
        name: str | None = None,
    ) -> Dataset:
        """The elements without those whose computation in earlier stages raises an error."""
    def interleave(
        self,
        map_func: Callable[..., Dataset],
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        *,
        name: str | None = None,
    ) -> Dataset:
        """Interleaved elements of the data sets that a function returns for each element."""
    @staticmethod
    def list_files(
        file_pattern: str | Iterable[str],
        shuffle: bool | None = None,
        seed: int | None = None,
        *,
        name: str | None = None,
    ) -> Dataset:
        """The paths that match patterns, as strings."""
    @staticmethod
    def load(
        path: str | os.PathLike[str],
        element_spec: Any = None,
        compression: str | None = None,
        reader_func: None = None,
        wait: bool = False,
        *,
        name: str | None = None,
    ) -> Dataset:
        """The elements of a data set written by `save`, read on demand."""
    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        use_unbounded_threadpool: bool = False,
        workers: str = "thread",
        *,
        name: str | None = None,
    ) -> Dataset:
        """Results of a function for each element."""
    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
        *,
        name: str | None = None,
    ) -> Dataset:
        """Batches of consecutive elements, with values padded to equal shapes."""
    def prefetch(
        self, buffer_size: int | None = -1, *, name: str | None = None
    ) -> Dataset:
        """The same elements, computed while the consumer uses earlier ones."""
    def ragged_batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        row_splits_dtype: Any = "int64",
        *,
        name: str | None = None,
    ) -> Dataset:
        """Batches of consecutive elements whose rows can differ in length."""
    @staticmethod
    def random(
        seed: int | None = None,
        rerandomize_each_iteration: bool = False,
        *,
        name: str | None = None,
    ) -> Dataset:
        """An infinite sequence of random 64-bit integers."""
    @staticmethod
    def range(
        *args: int, output_type: Any = "int64", name: str | None = None
    ) -> Dataset:
        """The integers of a range, as in Python's `range`."""
    def rebatch(
        self,
        batch_size: int | Sequence[int],
        drop_remainder: bool = False,
        *,
        name: str | None = None,
    ) -> Dataset:
        """Batches of a different size with the same rows."""
    def rejection_resample(
        self,
        class_func: Callable[..., Any],
        target_dist: Any,
        initial_dist: Any = None,
        seed: int | None = None,
        *,
        name: str | None = None,
    ) -> Dataset:
        """(class, element) pairs, resampled to a target distribution of classes."""
    def repeat(self, count: int | None = None, *, name: str | None = None) -> Dataset:
        """The elements, repeated; earlier shuffle stages reshuffle for each repetition."""
    @staticmethod
    def sample_from_datasets(
        datasets: Sequence[Dataset],
        weights: Any = None,
        seed: int | None = None,
        stop_on_empty_dataset: bool = False,
        rerandomize_each_iteration: bool | None = None,
        *,
        name: str | None = None,
    ) -> Dataset:
        """Elements sampled at random from several data sets."""
    def scan(
        self,
        initial_state: Any,
        scan_func: Callable[..., Any],
        *,
        name: str | None = None,
    ) -> Dataset:
        """Outputs of a function with a running state."""
    def shard(self, num_shards: int, index: int, *, name: str | None = None) -> Dataset:
        """Every n-th element, for one of n workers."""
    def shuffle(
        self,
        buffer_size: int | None,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = True,
        *,
        name: str | None = None,
    ) -> Dataset:
        """The elements in a random order."""
    def skip(self, count: int, *, name: str | None = None) -> Dataset:
        """The elements after the first ones."""
    def snapshot(
        self,
        path: str | os.PathLike[str],
        compression: str | None = "AUTO",
        reader_func: None = None,
        shard_func: None = None,
        *,
        name: str | None = None,
    ) -> Dataset:
        """A snapshot of the elements in a folder that data sets can share."""
    def take(self, count: int, *, name: str | None = None) -> Dataset:
        """The first elements."""
    def take_while(
        self, predicate: Callable[..., Any], *, name: str | None = None
    ) -> Dataset:
        """The elements before the first for which a predicate is false."""
    def unbatch(self, *, name: str | None = None) -> Dataset:
        """The rows of each element as separate elements."""
    def unique(self, *, name: str | None = None) -> Dataset:
        """The distinct values in order of first occurrence; elements must be scalars."""
    def window(
        self,
        size: int,
        shift: int | None = None,
        stride: int = 1,
        drop_remainder: bool = False,
        *,
        name: str | None = None,
    ) -> Dataset:
        """Datasets of consecutive elements."""
    def with_options(self, options: Options, *, name: str | None = None) -> Dataset:
        """The same elements with other options."""
    @staticmethod
    def zip(*args: Any, datasets: Any = None, name: str | None = None) -> Dataset:
        """Tuples of elements of several data sets, up to the end of the shortest."""
