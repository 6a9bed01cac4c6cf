"""`tf.keras.preprocessing.text`: texts as sequences of word indices."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.console.frames import warn
from toolkit.errors import ArgumentError, ArgumentTypeError, unknown_choice

__all__ = [
    *("Tokenizer", "hashing_trick", "one_hot", "text_to_word_sequence"),
    "tokenizer_from_json",
]

FILTERS = '!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n'
MODES = ("binary", "count", "freq", "tfidf")
# Entries of a config that are JSON texts.
_TABLES = ("word_counts", "word_docs", "index_docs", "index_word", "word_index")


def text_to_word_sequence(
    input_text: str, filters: str = FILTERS, lower: bool = True, split: str = " "
) -> list[str]:
    """Split a text into words.

    Args:
        input_text: the text.
        filters: characters that are replaced by the separator.
        lower: whether to convert to lower case.
        split: the separator of words.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.keras.preprocessing.text.text_to_word_sequence("One, two.")
        ['one', 'two']
    """
    text = input_text.lower() if lower else input_text
    text = text.translate({ord(character): split for character in filters})
    return [word for word in text.split(split) if word]


def hashing_trick(
    text: str,
    n: int,
    hash_function: Any = None,
    filters: str = FILTERS,
    lower: bool = True,
    split: str = " ",
    analyzer: Callable[[str], Iterable[str]] | None = None,
) -> list[int]:
    """Return an index in [1, n) for each word of a text: its hash, modulo n - 1, plus
    1.

    Args:
        text: the text.
        n: the largest index plus 1.
        hash_function: from a word to an integer; "md5", which is the same in all
            processes; None: Python's `hash`, which is not.
        filters, lower, split: as in `text_to_word_sequence`.
        analyzer: from a text to its words, instead of `text_to_word_sequence`.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.keras.preprocessing.text.hashing_trick("one two one", 100, "md5")
        [39, 78, 39]
    """
    if n < 2:
        raise ArgumentError(f"hashing_trick: expected n >= 2; received {n}")
    number_of = {None: hash, "md5": _md5}.get(hash_function, hash_function)
    if not callable(number_of):
        raise unknown_choice("hashing_trick: hash_function", hash_function, ["md5"])
    words = _words(text, filters, lower, split, analyzer)
    return [number_of(word) % (n - 1) + 1 for word in words]


def one_hot(
    input_text: str,
    n: int,
    filters: str = FILTERS,
    lower: bool = True,
    split: str = " ",
    analyzer: Callable[[str], Iterable[str]] | None = None,
) -> list[int]:
    """Apply `hashing_trick` with Python's `hash`, which differs in each process."""
    return hashing_trick(input_text, n, None, filters, lower, split, analyzer)


def _md5(word: str) -> int:
    return int(hashlib.md5(word.encode(), usedforsecurity=False).hexdigest(), 16)


def _words(text: str, filters: str, lower: bool, split: str, analyzer: Any) -> Any:
    if analyzer is not None:
        return analyzer(text)
    return text_to_word_sequence(text, filters, lower, split)


class Tokenizer:
    """Tokenizer with word indices by frequency, from texts to index sequences.

    The most frequent word has index 1, or 2 if there is a token for unknown words,
    which then has index 1. New code uses `TextVectorization`.

    Args:
        num_words: keep only words with an index below it; None: all.
        filters, lower, split: as in `text_to_word_sequence`.
        char_level: whether each character is a word.
        oov_token: the replacement of unknown words; None: they are dropped.
        analyzer: from a text to its words, instead of `text_to_word_sequence`.
        **kwargs: `document_count`, of previous texts; and `nb_words`, the legacy name
            of
            `num_words`.

    Attributes:
        word_index, index_word: the index of each word, and the word of each index.
        word_counts: the count of each word, in the order of first occurrence.
        word_docs, index_docs: the number of texts with a word, by word and by index.
        document_count: the number of texts.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tokenizer = tf.keras.preprocessing.text.Tokenizer()
        >>> tokenizer.fit_on_texts(["the cat", "the dog"])
        >>> tokenizer.texts_to_sequences(["The dog!", "a cat"])
        [[1, 3], [2]]
    """

    def __init__(
        self,
        num_words: int | None = None,
        filters: str = FILTERS,
        lower: bool = True,
        split: str = " ",
        char_level: bool = False,
        oov_token: str | None = None,
        analyzer: Callable[[str], Iterable[str]] | None = None,
        **kwargs: Any,
    ) -> None:
        if "nb_words" in kwargs:
            warn("Tokenizer: `nb_words` is renamed to `num_words`")
            num_words = kwargs.pop("nb_words")
        self.document_count: int = kwargs.pop("document_count", 0)
        if kwargs:
            raise ArgumentTypeError(f"Tokenizer: unknown arguments {sorted(kwargs)}")
        self.num_words = num_words
        self.filters = filters
        self.lower = lower
        self.split = split
        self.char_level = char_level
        self.oov_token = oov_token
        self.analyzer = analyzer
        self.word_counts: dict[Any, int] = OrderedDict()
        self.word_docs: dict[Any, int] = defaultdict(int)
        self.index_docs: dict[int, int] = defaultdict(int)
        self.word_index: dict[Any, int] = {}
        self.index_word: dict[int, Any] = {}

    def _words(self, text: str) -> Any:
        """Return the words of a text, which can also be a list of words."""
        if not self.char_level and not isinstance(text, list):
            return _words(text, self.filters, self.lower, self.split, self.analyzer)
        if not self.lower:
            return text
        if isinstance(text, list):
            return [word.lower() for word in text]
        return text.lower()

    def fit_on_texts(self, texts: Iterable[Any]) -> None:
        """Count the words of texts, and assign indices.

        Args:
            texts: texts, or lists of words.
        """
        for text in texts:
            self.document_count += 1
            words = list(self._words(text))
            for word in words:
                self.word_counts[word] = self.word_counts.get(word, 0) + 1
            for word in set(words):
                self.word_docs[word] = self.word_docs.get(word, 0) + 1
        # Words of equal frequency stay in the order of their first occurrence.
        words_by_count = sorted(
            self.word_counts, key=lambda word: -self.word_counts[word]
        )
        words_by_count = (
            words_by_count
            if self.oov_token is None
            else [self.oov_token, *words_by_count]
        )
        # If a text contains the token for unknown words, its last index counts.
        self.word_index = {
            word: number for number, word in enumerate(words_by_count, 1)
        }
        self.index_word = {number: word for word, number in self.word_index.items()}
        for word, count in self.word_docs.items():
            self.index_docs[self.word_index[word]] = count

    def fit_on_sequences(self, sequences: Sequence[Iterable[int]]) -> None:
        """Count the sequences that contain each index, for `mode="tfidf"`."""
        self.document_count += len(sequences)
        for sequence in sequences:
            for number in set(sequence):
                self.index_docs[number] = self.index_docs.get(number, 0) + 1

    def texts_to_sequences(self, texts: Iterable[Any]) -> list[list[int]]:
        """Return the word indices of each text."""
        return list(self.texts_to_sequences_generator(texts))

    def texts_to_sequences_generator(self, texts: Iterable[Any]) -> Iterator[list[int]]:
        """Yield the word indices of each text."""
        for text in texts:
            numbers = (
                self._index_or_oov(self.word_index.get(w)) for w in self._words(text)
            )
            yield [number for number in numbers if number is not None]

    def _index_or_oov(self, number: int | None) -> int | None:
        """Return the index of a kept word, else the index of unknown words."""
        is_kept = number is not None and not (
            self.num_words and number >= self.num_words
        )
        if is_kept or self.oov_token is None:
            return number if is_kept else None
        return self.word_index.get(self.oov_token)

    def sequences_to_texts(self, sequences: Iterable[Iterable[int]]) -> list[str]:
        """Return the words of each sequence, separated by spaces."""
        return list(self.sequences_to_texts_generator(sequences))

    def sequences_to_texts_generator(
        self, sequences: Iterable[Iterable[int]]
    ) -> Iterator[str]:
        """Yield the words of each sequence, separated by spaces."""
        for sequence in sequences:
            numbers = (
                self._index_or_oov(n if n in self.index_word else None)
                for n in sequence
            )
            yield " ".join(self.index_word[n] for n in numbers if n is not None)

    def texts_to_matrix(
        self, texts: Iterable[Any], mode: str = "binary"
    ) -> NDArray[np.float64]:
        """Return one row per text; see `sequences_to_matrix`."""
        return self.sequences_to_matrix(self.texts_to_sequences(texts), mode)

    def sequences_to_matrix(
        self, sequences: Sequence[Sequence[int]], mode: str = "binary"
    ) -> NDArray[np.float64]:
        """Return one row per sequence, with a column for each index.

        Args:
            sequences: sequences of word indices.
            mode: "binary": 1 for an index that occurs; "count": its count; "freq": the
                count divided by the sequence length; "tfidf": (1 + log(count)) * log(1
                    +
                document_count / (1 + the number of texts with the index)).

        Returns:
            (sequences, num_words), or the number of words plus 1.

        Raises:
            ArgumentError: the number of words is unknown, or for "tfidf" the number of
                texts with each word.
        """
        if mode not in MODES:
            raise unknown_choice("Tokenizer: mode", mode, MODES)
        if not self.num_words and not self.word_index:
            raise ArgumentError(
                "Tokenizer: expected a `num_words`, or a previous call of "
                "`fit_on_texts`; received neither"
            )
        if mode == "tfidf" and not self.document_count:
            raise ArgumentError(
                "Tokenizer: mode='tfidf' needs a previous call of `fit_on_texts`"
            )
        columns = self.num_words or len(self.word_index) + 1
        matrix = np.zeros((len(sequences), columns))
        for row, sequence in zip(matrix, sequences, strict=True):
            for number, count in Counter(sequence).items():
                if number < columns:
                    row[number] = self._weight(number, count, len(sequence), mode)
        return matrix

    def _weight(self, number: int, count: int, length: int, mode: str) -> float:
        if mode == "tfidf":
            texts = 1 + self.index_docs.get(number, 0)
            return float((1 + np.log(count)) * np.log(1 + self.document_count / texts))
        return {"binary": 1.0, "count": float(count), "freq": count / length}[mode]

    def get_config(self) -> dict[str, Any]:
        """Return the config for `tokenizer_from_json`; it does not include an
        `analyzer`."""
        plain = ("num_words", "filters", "lower", "split", "char_level", "oov_token")
        config = {name: getattr(self, name) for name in (*plain, "document_count")}
        return config | {name: json.dumps(getattr(self, name)) for name in _TABLES}

    def to_json(self, **kwargs: Any) -> str:
        """Return the config as JSON.

        Args:
            **kwargs: passed to `json.dumps`.
        """
        config = {"class_name": type(self).__name__, "config": self.get_config()}
        return json.dumps(config, **kwargs)


def tokenizer_from_json(json_string: str) -> Tokenizer:
    """Restore a Tokenizer from its `to_json` text.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tokenizer = tf.keras.preprocessing.text.Tokenizer(num_words=2)
        >>> tokenizer.fit_on_texts(["a b a"])
        >>> same = tf.keras.preprocessing.text.tokenizer_from_json(tokenizer.to_json())
        >>> same.texts_to_sequences(["b a"])
        [[1]]
    """
    config = dict(json.loads(json_string)["config"])
    tables = {name: json.loads(config.pop(name)) for name in _TABLES}
    tokenizer = Tokenizer(**config)
    for name, table in tables.items():
        if name.startswith("index"):  # keys in JSON are texts
            table = {int(number): value for number, value in table.items()}
        setattr(tokenizer, name, table)
    return tokenizer
