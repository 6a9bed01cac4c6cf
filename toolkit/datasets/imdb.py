"""IMDB: positive and negative movie reviews, as lists of word indices."""

from __future__ import annotations

import numpy as np

from toolkit.datasets.base import KERAS_FILES, RemoteFile, Split
from toolkit.datasets.pickles import load_lists
from toolkit.datasets.sequences import (
    prepare_texts,
    read_word_index,
    replace_rare_words,
)

FILE = RemoteFile(
    f"{KERAS_FILES}/imdb.npz",
    "69664113be75683a8fe16e3ed0ab59fda8886cb3cd7ada244f7d9544e4676b9f",
)
WORDS = RemoteFile(
    f"{KERAS_FILES}/imdb_word_index.json", "bfafd718b763782e994055a2d397834f"
)


def load_data(
    path: str = "imdb.npz",
    num_words: int | None = None,
    skip_top: int = 0,
    maxlen: int | None = None,
    seed: int | None = 113,
    start_char: int | None = 1,
    oov_char: int | None = 2,
    index_from: int = 3,
) -> Split:
    """Load 25,000 reviews for training and 25,000 for the test.

    Word indices are ranks by frequency. The first call downloads the file (17 MB) and
    verifies it. Reading the file runs no code from it.

    Args:
        path: The file name in the cache folder `datasets`.
        num_words: Keep only indices below this number; None keeps all but the largest.
        skip_top: Drop indices below this number.
        maxlen: Keep only reviews shorter than this, in words.
        seed: Seed of the sample order.
        start_char: The first index of each review, or None; 0 is for padding.
        oov_char: The index that replaces a dropped word; None removes the word.
        index_from: Added to the word indices.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: reviews, lists of integers in an object
        array (n,); labels int64 (n,): 1 for a positive review, 0 for a negative one.

    Raises:
        DatasetError: the download fails; the message has the path for a manual copy.

    Example:
        >>> from toolkit.datasets import imdb
        >>> train, test = imdb.load_data()  # doctest: +SKIP

    Reference:
        A. Maas et al., Learning Word Vectors for Sentiment Analysis, 2011,
        https://ai.stanford.edu/~amaas/data/sentiment/
    """
    arrays = load_lists(FILE.fetch(fname=path))
    # Keras uses one stream for both: the order of the test set depends on both calls.
    source = np.random.RandomState(seed)
    options = source, maxlen, start_char, index_from
    (x_train, y_train), (x_test, y_test) = (
        prepare_texts(
            "imdb.load_data",
            arrays[f"x_{split_name}"],
            arrays[f"y_{split_name}"],
            *options,
        )
        for split_name in ("train", "test")
    )
    x = replace_rare_words(x_train + x_test, num_words, skip_top, oov_char)
    y = np.concatenate([y_train, y_test])
    n_train = len(x_train)
    return (x[:n_train], y[:n_train]), (x[n_train:], y[n_train:])


def get_word_index(path: str = "imdb_word_index.json") -> dict[str, int]:
    """Return the map from a word to its index; `load_data` adds `index_from`.

    Args:
        path: The file name in the cache folder `datasets`.

    Returns:
        A dict from words to indices.

    Raises:
        DatasetError: the download fails; the message has the path for a manual copy.

    Example:
        >>> from toolkit.datasets import imdb
        >>> index = imdb.get_word_index()["film"]  # doctest: +SKIP
    """
    return read_word_index(WORDS, path)
