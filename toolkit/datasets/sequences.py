"""Shared helpers for texts as lists of word indices."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import numpy as np

from toolkit.datasets.base import (
    RemoteFile,
    shuffle,
)
from toolkit.datasets.pickles import array_of_lists
from toolkit.errors import ArgumentError, DatasetError
from toolkit.type_aliases import Array

Lists = list[list[int]]


def prepare_texts(
    function: str,
    x: Array,
    y: Array,
    seed: int | np.random.RandomState | None,
    maxlen: int | None,
    start_char: int | None,
    index_from: int,
) -> tuple[Lists, Array]:
    """Shuffle texts and labels, keep texts shorter than `maxlen`, prepend
    `start_char`."""
    x, y = shuffle(seed, x, y)
    start = [] if start_char is None else [start_char]
    texts = [start + [word + index_from for word in text] for text in x]
    if maxlen:
        selected = [i for i, text in enumerate(texts) if len(text) < maxlen]
        if not selected:
            raise ArgumentError(f"{function}: no text is shorter than maxlen={maxlen}")
        texts, y = [texts[i] for i in selected], y[selected]
    return texts, y


def replace_rare_words(
    texts: Lists, num_words: int | None, skip_top: int, oov_char: int | None
) -> Array:
    """Replace rare and skipped words by `oov_char`, or remove them."""
    # Without num_words, Keras also drops the largest index. This keeps its result.
    limit = num_words or max(chain.from_iterable(texts))
    if oov_char is None:
        filtered = [
            [word for word in text if skip_top <= word < limit] for text in texts
        ]
    else:
        filtered = [
            [word if skip_top <= word < limit else oov_char for word in text]
            for text in texts
        ]
    return array_of_lists(filtered)


def read_word_index(file: RemoteFile, path: str) -> dict[str, int]:
    """Read the map from a word to its index from a JSON file."""
    with open(file.fetch(fname=path), encoding="utf-8") as stream:
        content: Any = json.load(stream)
    if not isinstance(content, dict):
        raise DatasetError(f"{path}: expected a dict; received {type(content)}")
    return content
