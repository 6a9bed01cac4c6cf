"""IMDB: reviews of movies, good and bad, as lists of word numbers."""

from __future__ import annotations

import numpy as np

from toolkit.datasets.base import KERAS_FILES, RemoteFile, Split
from toolkit.datasets.pickles import load_lists
from toolkit.datasets.sequences import common, marked, read_word_index

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

    Words are numbered by how frequent they are. The file (17 MB) is downloaded once,
    checked, and read without running code from it.

    Args:
        path: The file's name in the cache folder `datasets`.
        num_words: Only numbers below this are kept; None keeps all but the largest.
        skip_top: Numbers below this are left out.
        maxlen: Only reviews shorter than this are kept, in words.
        seed: Chooses the order of the reviews.
        start_char: The number that begins each review, if any; 0 is for padding.
        oov_char: The number in place of a word that is left out; None drops the word.
        index_from: Added to the numbers of words.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: reviews, lists of integers in an object
        array (n,); labels int64 (n,): 1 for a good review, 0 for a bad one.

    Raises:
        DatasetError: the file cannot be fetched; says where to put it by hand.

    Reference:
        A. Maas et al., Learning Word Vectors for Sentiment Analysis, 2011,
        https://ai.stanford.edu/~amaas/data/sentiment/
    """
    arrays = load_lists(FILE.fetch(fname=path))
    # Keras goes on with one stream: the order of the test follows from both.
    source = np.random.RandomState(seed)
    options = source, maxlen, start_char, index_from
    (x_train, y_train), (x_test, y_test) = (
        marked("imdb.load_data", arrays[f"x_{part}"], arrays[f"y_{part}"], *options)
        for part in ("train", "test")
    )
    x = common(x_train + x_test, num_words, skip_top, oov_char)
    y = np.concatenate([y_train, y_test])
    n_train = len(x_train)
    return (x[:n_train], y[:n_train]), (x[n_train:], y[n_train:])


def get_word_index(path: str = "imdb_word_index.json") -> dict[str, int]:
    """Word -> its number, to which `load_data` adds `index_from`.

    Args:
        path: The file's name in the cache folder `datasets`.

    Raises:
        DatasetError: the file cannot be fetched; says where to put it by hand.
    """
    return read_word_index(WORDS, path)
