"""Reuters: short news texts of 46 topics, as lists of word indices."""

from __future__ import annotations

from toolkit.datasets.base import (
    KERAS_FILES,
    RemoteFile,
    Split,
    check_test_split,
    split,
)
from toolkit.datasets.pickles import load_lists
from toolkit.datasets.sequences import (
    prepare_texts,
    read_word_index,
    replace_rare_words,
)

FILE = RemoteFile(
    f"{KERAS_FILES}/reuters.npz",
    "d6586e694ee56d7a4e65172e12b3e987c03096cb01eab99753921ef915959916",
)
WORDS = RemoteFile(
    f"{KERAS_FILES}/reuters_word_index.json", "4d44cc38712099c9e383dc6e5f11a921"
)
_TOPICS = """
    cocoa grain veg-oil earn acq wheat copper housing money-supply coffee sugar trade
    reserves ship cotton carcass crude nat-gas cpi money-fx interest gnp meal-feed alum
    oilseed gold tin strategic-metal livestock retail ipi iron-steel rubber heat jobs
    lei bop zinc orange pet-chem dlr gas silver wpi hog lead
"""


def load_data(
    path: str = "reuters.npz",
    num_words: int | None = None,
    skip_top: int = 0,
    maxlen: int | None = None,
    test_split: float = 0.2,
    seed: int | None = 113,
    start_char: int | None = 1,
    oov_char: int | None = 2,
    index_from: int = 3,
) -> Split:
    """Load 11,228 news texts, split for training and test.

    Word indices are ranks by frequency. The first call downloads the file (2 MB) and
    verifies it. Reading the file runs no code from it.

    Args:
        path: The file name in the cache folder `datasets`.
        num_words: Keep only indices below this number; None keeps all but the largest.
        skip_top: Drop indices below this number.
        maxlen: Keep only texts shorter than this, in words.
        test_split: The fraction of samples for the test, from 0 to 1.
        seed: Seed of the sample order.
        start_char: The first index of each sample, or None; 0 is for padding.
        oov_char: The index that replaces a dropped word; None removes the word.
        index_from: Added to the word indices.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: news texts, lists of integers in an
        object array (n,); labels int64 from 0 to 45: (n,).

    Raises:
        DatasetError: the download fails; the message has the path for a manual copy.

    Example:
        >>> from toolkit.datasets import reuters
        >>> train, test = reuters.load_data()  # doctest: +SKIP

    Reference:
        D. Lewis, Reuters-21578, 1997, https://doi.org/10.24432/C52G6M
    """
    check_test_split("reuters.load_data", test_split, all_of_them=True)
    arrays = load_lists(FILE.fetch(fname=path))
    texts, y = prepare_texts(
        "reuters.load_data",
        arrays["x"],
        arrays["y"],
        seed,
        maxlen,
        start_char,
        index_from,
    )
    return split(
        replace_rare_words(texts, num_words, skip_top, oov_char), y, test_split
    )


def get_word_index(path: str = "reuters_word_index.json") -> dict[str, int]:
    """Return the map from a word to its index; `load_data` adds `index_from`.

    Args:
        path: The file name in the cache folder `datasets`.

    Returns:
        A dict from words to indices.

    Raises:
        DatasetError: the download fails; the message has the path for a manual copy.

    Example:
        >>> from toolkit.datasets import reuters
        >>> index = reuters.get_word_index()["oil"]  # doctest: +SKIP
    """
    return read_word_index(WORDS, path)


def get_label_names() -> tuple[str, ...]:
    """Return the names of the 46 topics, in the order of their labels.

    Returns:
        A tuple of names.

    Example:
        >>> from toolkit.datasets import reuters
        >>> reuters.get_label_names()[3]
        'earn'
    """
    return tuple(_TOPICS.split())
