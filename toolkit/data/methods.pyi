# Written by scripts/write_stubs; do not edit.
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from toolkit.data.dataset import Dataset
from toolkit.data.options import Options
from toolkit.data.stored import Path_

class Methods:
    def assert_cardinality(
        self, expected_cardinality: int, *, name: str | None = None
    ) -> Dataset:
        """The same elements, whose number is known: as of a generator it cannot be."""
    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        *,
        name: str | None = None,
    ) -> Dataset:
        """Elements in batches: values of equal shapes are stacked along a new first axis."""
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
        """Batches of elements of similar lengths, so that little is padded."""
    def cache(
        self, filename: str | os.PathLike[str] = "", *, name: str | None = None
    ) -> Dataset:
        """The elements, kept when they come for the first time."""
    @staticmethod
    def choose_from_datasets(
        datasets: Sequence[Dataset],
        choice_dataset: Dataset,
        stop_on_empty_dataset: bool = True,
        *,
        name: str | None = None,
    ) -> Dataset:
        """Each element from the data set that another one names."""
    def concatenate(self, dataset: Dataset, *, name: str | None = None) -> Dataset:
        """The elements of this data set, then those of another."""
    @staticmethod
    def counter(
        start: int = 0, step: int = 1, dtype: Any = "int64", *, name: str | None = None
    ) -> Dataset:
        """Numbers that follow each other, without end."""
    def enumerate(self, start: int = 0, *, name: str | None = None) -> Dataset:
        """Each element with its number: (number, element)."""
    def filter(
        self, predicate: Callable[..., Any], *, name: str | None = None
    ) -> Dataset:
        """The elements for which a function is true."""
    def flat_map(
        self, map_func: Callable[..., Dataset], *, name: str | None = None
    ) -> Dataset:
        """The elements of the data sets that a function makes of each element."""
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
        """What a generator yields; each pass calls it anew."""
    @staticmethod
    def from_hdf5(path: Path_, keys: Any = None, *, name: str | None = None) -> Dataset:
        """The rows of data sets in an HDF5 file; whole chunks are read, and kept a while."""
    @staticmethod
    def from_image_folder(
        directory: Path_,
        image_size: tuple[int, int] | None = None,
        color_mode: str = "rgb",
        *,
        name: str | None = None,
    ) -> Dataset:
        """(pixels, label) of the images in a folder that has a folder for each class."""
    @staticmethod
    def from_items(items: Any, *, name: str | None = None) -> Dataset:
        """The items of any object with `__getitem__` and `__len__`."""
    @staticmethod
    def from_npy(paths: Any, *, name: str | None = None) -> Dataset:
        """The rows of arrays in .npy files, which stay on disk: they are memory-mapped."""
    @staticmethod
    def from_npz(path: Path_, keys: Any = None, *, name: str | None = None) -> Dataset:
        """The rows of the arrays of an .npz file, as dicts; the arrays are read at once."""
    @staticmethod
    def from_tensor_slices(tensors: Any, *, name: str | None = None) -> Dataset:
        """The rows of arrays: an element is a row of each; nothing is copied."""
    @staticmethod
    def from_tensors(tensors: Any, *, name: str | None = None) -> Dataset:
        """One element: what is given."""
    def group_by_window(
        self,
        key_func: Callable[..., Any],
        reduce_func: Callable[[Any, Dataset], Dataset],
        window_size: int | None = None,
        window_size_func: Callable[[Any], int] | None = None,
        *,
        name: str | None = None,
    ) -> Dataset:
        """Elements gathered by a key; of each full group a function makes a data set."""
    def ignore_errors(
        self,
        log_warning: bool = False,
        log: Callable[[str], Any] | None = None,
        *,
        name: str | None = None,
    ) -> Dataset:
        """The elements without those whose functions, in the stages before, raise."""
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
        """Elements of the data sets that a function makes of each element, by turns."""
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
        """The elements that `save` has written; they are read where they are needed."""
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
        """Each element as a function makes it."""
    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
        *,
        name: str | None = None,
    ) -> Dataset:
        """Elements in batches, with values filled up to equal shapes."""
    def prefetch(
        self, buffer_size: int | None = -1, *, name: str | None = None
    ) -> Dataset:
        """The same elements, made while the ones before are used."""
    def ragged_batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        row_splits_dtype: Any = "int64",
        *,
        name: str | None = None,
    ) -> Dataset:
        """Elements in batches whose rows may differ in length."""
    @staticmethod
    def random(
        seed: int | None = None,
        rerandomize_each_iteration: bool = False,
        *,
        name: str | None = None,
    ) -> Dataset:
        """Random integers of 64 bits, without end."""
    @staticmethod
    def range(
        *args: int, output_type: Any = "int64", name: str | None = None
    ) -> Dataset:
        """The integers of a range, as Python's `range` gives them."""
    def rebatch(
        self,
        batch_size: int | Sequence[int],
        drop_remainder: bool = False,
        *,
        name: str | None = None,
    ) -> Dataset:
        """Batches of other sizes with the same rows."""
    def rejection_resample(
        self,
        class_func: Callable[..., Any],
        target_dist: Any,
        initial_dist: Any = None,
        seed: int | None = None,
        *,
        name: str | None = None,
    ) -> Dataset:
        """(class, element) of some of the elements, so that classes have wanted shares."""
    def repeat(self, count: int | None = None, *, name: str | None = None) -> Dataset:
        """The elements several times; what is shuffled before is shuffled anew each time."""
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
        """Each element from one of several data sets, drawn at random."""
    def scan(
        self,
        initial_state: Any,
        scan_func: Callable[..., Any],
        *,
        name: str | None = None,
    ) -> Dataset:
        """Elements that a function makes with a state, which it hands on."""
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
        """The elements, kept in a folder that other data sets may use too."""
    def take(self, count: int, *, name: str | None = None) -> Dataset:
        """The first elements."""
    def take_while(
        self, predicate: Callable[..., Any], *, name: str | None = None
    ) -> Dataset:
        """The elements before the first for which a function is false."""
    def unbatch(self, *, name: str | None = None) -> Dataset:
        """The rows of each element, one after the other."""
    def unique(self, *, name: str | None = None) -> Dataset:
        """Each value once, where it comes first; the values must be single ones."""
    def window(
        self,
        size: int,
        shift: int | None = None,
        stride: int = 1,
        drop_remainder: bool = False,
        *,
        name: str | None = None,
    ) -> Dataset:
        """Data sets of elements that follow each other."""
    def with_options(self, options: Options, *, name: str | None = None) -> Dataset:
        """The same elements, under other options."""
    @staticmethod
    def zip(*args: Any, datasets: Any = None, name: str | None = None) -> Dataset:
        """Elements of several data sets side by side, until one of them ends."""
