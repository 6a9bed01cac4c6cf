"""TextVectorization: maps texts to word indices or codes."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from toolkit import dtypes, ops, settings
from toolkit.arguments import is_int
from toolkit.core.composites import make_ragged
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError
from toolkit.layers.preprocessing.host import (
    AdaptableLayer,
    blocks_of,
    host_array,
    refuse_sparse,
    text_array,
)
from toolkit.layers.preprocessing.lookup import StringLookup
from toolkit.layers.weights import choice
from toolkit.ops.symbolic import KerasTensor
from toolkit.serialization import deserialize_keras_object
from toolkit.type_aliases import Array, TypedLayerOptions

_LOWER = {ord(c): c.lower() for c in string.ascii_uppercase}
_STRIP = dict.fromkeys(map(ord, string.punctuation))
_STANDARDS: dict[str, dict[int, Any]] = {
    "lower_and_strip_punctuation": _LOWER | _STRIP,
    "lower": _LOWER,
    "strip_punctuation": _STRIP,
}
_find_words = re.compile(r"[^ \t\n\v\f\r]+").findall
# ASCII characters that separate words for `str.split` only.
_SEPARATORS = ("\x1c", "\x1d", "\x1e", "\x1f")


def _split_words(text: str) -> list[str]:
    """Split at ASCII whitespace."""
    if text.isascii() and not any(map(text.__contains__, _SEPARATORS)):
        return text.split()  # several times faster
    return _find_words(text)


_SPLITS: dict[str, Callable[[str], list[str]]] = {
    "whitespace": _split_words,
    "character": list,
}


class TextVectorization(AdaptableLayer):
    """Layer that maps texts to indices of their words in a vocabulary, or to one code.

    It standardizes a text, splits it into words, and looks up the words, or n-grams of
    them, like `StringLookup` with "" as the mask token.

    Args:
        max_tokens: the maximum number of indices; None for no limit.
        standardize: "lower_and_strip_punctuation" (of ASCII), "lower",
            "strip_punctuation", None, or a function of an array of texts, which can
            receive a part of the rows if one text is far longer than the rest.
        split: "whitespace", "character", None, or a function from an array of texts to
            one list of words each.
        ngrams: n for all n-grams up to n words; a tuple for these lengths; or None.
        output_mode: "int", "multi_hot", "count", "tf_idf"; "one_hot" if nothing is
            split.
        output_sequence_length: in mode "int", the number of indices per text: longer
            texts are truncated, shorter ones padded with 0. Set it in a model: the step
            is compiled again for another number.
        pad_to_max_tokens: whether codes always have `max_tokens` entries.
        vocabulary: a list, an array or the path of a text file with one word per line;
            None: `adapt` learns it.
        idf_weights: in mode "tf_idf", a weight for each entry of the vocabulary.
        sparse: must be False: sparse tensors are not supported.
        ragged: whether to omit padding: one index per word, only in mode "int". The
            result is a `toolkit.data.Ragged`, or a `tf.RaggedTensor` with the
            TensorFlow API.
        encoding: the encoding of bytes.
        name: the name; generated from the class name if None.
        vocabulary_size: the number of indices of a saved vocabulary; a config sets it.
        has_input_vocabulary: whether the constructor received a vocabulary; a config
            sets it.

    Call arguments:
        inputs: texts, (batch,), (batch, 1), or (..., 1); any shape if nothing is split.

    Output shape: (batch, ..., words), or (batch, ..., tokens) for codes; the shape of
        the inputs for the indices of texts that are not split.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.TextVectorization(output_sequence_length=4)
        >>> layer.adapt(["foo bar", "bar baz", "baz bada boom"])
        >>> layer([["foo qux bar"], ["Qux, baz!"]]).tolist()
        [[4, 1, 3, 0], [1, 2, 0, 0]]
    """

    def __init__(
        self,
        max_tokens: int | None = None,
        standardize: Any = "lower_and_strip_punctuation",
        split: Any = "whitespace",
        ngrams: Any = None,
        output_mode: str = "int",
        output_sequence_length: int | None = None,
        pad_to_max_tokens: bool = False,
        vocabulary: str | Path | Sequence[Any] | None = None,
        idf_weights: Any = None,
        sparse: bool = False,
        ragged: bool = False,
        encoding: str = "utf-8",
        name: str | None = None,
        vocabulary_size: int | None = None,
        has_input_vocabulary: bool | None = None,
        **kwargs: Unpack[TypedLayerOptions],
    ) -> None:
        super().__init__(name=name, **kwargs)
        refuse_sparse(self, sparse)
        self._ragged = bool(ragged)
        self._standardize = _named(self, "standardize", standardize, _STANDARDS)
        self._split = _named(self, "split", split, _SPLITS)
        self._ngrams_arg, self._ngrams = ngrams, _widths(ngrams)
        self.encoding = encoding
        self._output_sequence_length = output_sequence_length
        if vocabulary is not None and not isinstance(vocabulary, (str, Path)):
            vocabulary = self._arrays(vocabulary).tolist()
        self._lookup_layer = StringLookup(
            max_tokens=max_tokens,
            vocabulary=vocabulary,
            idf_weights=idf_weights,
            pad_to_max_tokens=pad_to_max_tokens,
            mask_token="",
            output_mode=output_mode,
            encoding=encoding,
            vocabulary_size=vocabulary_size,
            has_input_vocabulary=has_input_vocabulary,
        )
        self._output_mode = self._lookup_layer.output_mode
        self._check_length(output_sequence_length)
        if self._ragged and (self._output_mode != "int" or split is None):
            raise ArgumentError(
                "TextVectorization: `ragged=True` needs output_mode='int' and a "
                f"`split`; received output_mode={output_mode!r}, split={split!r}"
            )
        if self._ragged and output_sequence_length is not None:
            raise ArgumentError(
                "TextVectorization: `output_sequence_length` must not be set if "
                f"`ragged=True`; received {output_sequence_length}"
            )

    def _check_length(self, length: int | None) -> None:
        if length is None:
            return
        if self._output_mode != "int":
            raise ArgumentError(
                "TextVectorization: `output_sequence_length` must not be set if "
                f"`output_mode` is not 'int'; received {length!r}"
            )
        if not is_int(length) or length < 0:
            raise ArgumentError(
                "TextVectorization: `output_sequence_length` must be either None or "
                f"an integer that is not negative; received {length!r}"
            )

    @property
    def compute_dtype(self) -> str:
        """Return the dtype of the inputs."""
        return dtypes.STRING

    variable_dtype = compute_dtype

    # --- vocabulary -------------------------------------------------------------------

    def adapt(  # type: ignore[override]
        self, data: Any, batch_size: int | None = None, steps: int | None = None
    ) -> None:
        """Learn the vocabulary, and the weights of mode "tf_idf", from texts.

        Args:
            data: a list or array of texts, or an iterable of batches of them.
            batch_size: ignored.
            steps: the number of batches; None for all.
        """
        super().adapt(data, steps)

    def update_state(self, data: Any) -> None:
        self._lookup_layer.check_adaptable(f"TextVectorization {self.name!r}")
        texts = self._standardized(self._arrays(data))
        if self._split is None and texts.ndim < 2:  # one document
            texts = texts.reshape(1, -1)
        self._lookup_layer._count(self._documents(texts))

    def finalize_state(self) -> None:
        self._lookup_layer.finalize_state()

    def reset_state(self) -> None:
        self._lookup_layer.reset_state()

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[str]:
        """Return the vocabulary, by default after "" and "[UNK]".

        Args:
            include_special_tokens: whether to include the mask token and the OOV token.
        """
        return self._lookup_layer.get_vocabulary(include_special_tokens)

    def vocabulary_size(self) -> int:
        """Return the number of used indices, including special tokens."""
        return self._lookup_layer.vocabulary_size()

    def set_vocabulary(self, vocabulary: Any, idf_weights: Any = None) -> None:
        """Set the vocabulary, and with mode "tf_idf" the weights.

        Args:
            vocabulary: a list, an array or the path of a text file with one word per
                line.
            idf_weights: in mode "tf_idf", a weight for each word.
        """
        self._lookup_layer.set_vocabulary(vocabulary, idf_weights)

    # --- calls ------------------------------------------------------------------------

    def _arrays(self, inputs: Any) -> Array:
        return text_array(self, host_array(self, inputs))

    def _documents(self, texts: Array) -> list[list[str]]:
        """Return the words, or n-grams, of each text or each row of the last axis."""
        if self._split is not None:
            return self._with_ngrams(self._split_all(_one_column(texts).reshape(-1)))
        rows = texts.reshape(-1, texts.shape[-1]) if texts.size else texts[:0]
        return self._with_ngrams([row.tolist() for row in rows])

    def _standardized(self, texts: Array) -> Array:
        if callable(self._standardize):
            return self._standardize_all(self._standardize, texts)
        if self._standardize is None:
            return texts
        table = _STANDARDS[self._standardize]
        return _map_text(lambda text: text.translate(table), texts)

    def _with_ngrams(self, documents: list[list[str]]) -> list[list[str]]:
        if self._ngrams is None:
            return documents
        return [
            [
                " ".join(words[i : i + n])
                for n in self._lengths_in(words)
                for i in range(len(words) - n + 1)
            ]
            for words in documents
        ]

    def _lengths_in(self, words: list[str]) -> Sequence[int]:
        """Return the lengths of the n-grams that a text of these words can have."""
        maximum = len(words) if isinstance(self._ngrams, range) else None
        return (self._ngrams or ())[:maximum]

    def _standardize_all(self, function: Callable[[Any], Any], texts: Array) -> Array:
        if texts.ndim == 0:
            return host_array(self, function(texts.astype(str)))
        blocks = blocks_of(_widths_of(texts))
        lists = [host_array(self, function(texts[rows].astype(str))) for rows in blocks]
        return lists[0] if len(lists) == 1 else _in_order(np.concatenate(lists), blocks)

    def _split_all(self, texts: Array) -> list[list[str]]:
        if not callable(self._split):
            return list(map(_SPLITS[self._split], texts.tolist()))
        documents: list[list[str]] = [[]] * len(texts)
        for rows in blocks_of(_widths_of(texts)):
            words = self._split(texts[rows].astype(str))
            words = list(words.to_list() if hasattr(words, "to_list") else words)
            if len(words) != len(rows):
                raise ShapeError(
                    f"TextVectorization {self.name!r}: expected `split` to return a "
                    f"list of words for each of {len(rows)} texts; received "
                    f"{len(words)}"
                )
            for row, items in zip(rows.tolist(), words, strict=True):
                documents[row] = text_array(self, np.asarray(items, object)).tolist()
        return documents

    def call(self, inputs: Any) -> Any:
        if self._output_mode == "int":
            self._lookup_layer.check_ready(f"TextVectorization {self.name!r}")
        texts = self._standardized(self._arrays(inputs))
        if self._split is None:
            return self._vectorize_whole(texts)
        leading = texts.shape[:-1] if texts.ndim > 1 else texts.shape
        return self._vectorize(self._documents(texts), leading)

    def _vectorize_whole(self, texts: Array) -> Any:
        """Return the indices of texts that are single words, or their codes."""
        length = self._output_sequence_length
        if texts.ndim == 0 and (self._ngrams is not None or length is not None):
            raise ShapeError(
                f"TextVectorization {self.name!r}: with `split=None`, `ngrams` and "
                "`output_sequence_length` need texts with at least one axis; received "
                "a single text"
            )
        if self._ngrams is not None:
            leading = texts.shape[:-1]
            rows = self._documents(texts)
            count = len(rows[0]) if rows else 0
            texts = np.empty(len(rows) * count, object)
            texts[:] = [word for words in rows for word in words]
            texts = texts.reshape(*leading, count)
        indices = self._lookup_layer._lookup(texts)
        if length is not None:
            kept_ids = indices[..., :length]
            padding = length - kept_ids.shape[-1]
            indices = np.pad(kept_ids, [(0, 0)] * (kept_ids.ndim - 1) + [(0, padding)])
        return self._lookup_layer._encode(indices)

    def _vectorize(self, documents: list[list[str]], leading: tuple[int, ...]) -> Any:
        """Return word indices, or codes, for texts in an array of this shape."""
        is_int = self._output_mode == "int"
        if self._output_sequence_length is not None:
            documents = [words[: self._output_sequence_length] for words in documents]
        lengths = list(map(len, documents))
        longest = max(lengths, default=0)
        if self._output_mode == "one_hot" and set(lengths) - {longest}:
            raise ArgumentError(
                "TextVectorization: mode 'one_hot' needs texts with equal numbers of "
                "words"
            )
        indices = self._lookup_layer._indices_of(list(chain.from_iterable(documents)))
        if is_int and not self._ragged:
            length = self._output_sequence_length
            rows = _padded(indices, lengths, longest if length is None else length)
            width = rows.shape[1]
            return self._lookup_layer._encode(rows.reshape(*leading, width))
        ids = np.split(indices, np.cumsum(lengths))[:-1]
        if is_int:
            return self._in_rows(ids)
        if not leading:
            return self._lookup_layer._encode(ids[0])
        blocks = blocks_of(lengths)
        code_blocks = [self._codes([ids[row] for row in rows]) for rows in blocks]
        codes = code_blocks[0]
        if len(code_blocks) > 1:
            codes = _in_order(ops.concatenate(code_blocks), blocks)
        return ops.reshape(codes, (*leading, *codes.shape[1:]))

    def _in_rows(self, ids: list[Array]) -> Any:
        """Return the indices of the words of each text, as ragged rows."""
        splits = np.cumsum([0, *map(len, ids)], dtype="int64")
        return make_ragged(np.concatenate([np.zeros(0, "int64"), *ids]), splits)

    def _codes(self, ids: list[Array]) -> Any:
        """Return the codes of words, from their indices per text."""
        lengths = list(map(len, ids))
        indices = np.concatenate([np.zeros(0, "int64"), *ids])
        rows = _padded(indices, lengths, max(lengths, default=0), -1)
        return self._lookup_layer._encode(rows)

    def compute_output_shape(self, input_shape: Any) -> Any:
        shape = tuple(input_shape)
        if self._split is not None:
            leading = shape[:-1] if len(shape) > 1 else shape
            is_int = self._output_mode == "int"
            depth = None if is_int else self._lookup_layer._depth()
            return (*leading, self._output_sequence_length if is_int else depth)
        if self._ngrams is not None:
            shape = (*shape[:-1], None)
        if self._output_sequence_length is not None:
            shape = (*shape[:-1], self._output_sequence_length)
        return self._lookup_layer.compute_output_shape(shape)

    def compute_output_spec(self, inputs: Any) -> Any:
        dtype = settings.floatx() if self._output_mode == "tf_idf" else "int64"
        return KerasTensor(self.compute_output_shape(inputs.shape), dtype)

    # --- saving -----------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        lookup = self._lookup_layer.get_config()
        arguments = {
            "standardize": self._standardize,
            "split": self._split,
            "ngrams": self._ngrams_arg,
            "output_sequence_length": self._output_sequence_length,
            "ragged": self._ragged,
        }
        config = super().get_config() | arguments
        return config | {name: lookup[name] for name in _FROM_LOOKUP}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> TextVectorization:
        config = dict(config)
        for name in ("standardize", "split"):
            if isinstance(config.get(name), dict):
                config[name] = deserialize_keras_object(config[name])
        if isinstance(config.get("ngrams"), list):
            config["ngrams"] = tuple(config["ngrams"])
        return cls(**config)

    def save_own_variables(self, store: Any) -> None:
        self._lookup_layer.save_own_variables(store)

    def load_own_variables(self, store: Any) -> None:
        self._lookup_layer.load_own_variables(store)

    def save_assets(self, dir_path: str) -> None:
        """Write the vocabulary to the folder, unless the config contains it.

        Args:
            dir_path: the folder of the file.
        """
        self._lookup_layer.save_assets(dir_path)

    def load_assets(self, dir_path: str | None) -> None:
        """Load the vocabulary of `save_assets`.

        Args:
            dir_path: the folder of the file.
        """
        self._lookup_layer.load_assets(dir_path)


_FROM_LOOKUP = (
    *("max_tokens", "output_mode", "pad_to_max_tokens", "sparse", "vocabulary"),
    *("idf_weights", "encoding", "vocabulary_size"),
)


def _named(layer: Any, argument: str, value: Any, table: dict[str, Any]) -> Any:
    """Return a function, None, or a named function of a table."""
    if value is None or callable(value):
        return value
    return choice(layer, argument, value, table)


def _widths(ngrams: Any) -> Sequence[int] | None:
    """Return the lengths of n-grams; a number means the range up to it."""
    if is_int(ngrams):
        return range(1, ngrams + 1)
    if ngrams is None or (isinstance(ngrams, tuple) and all(map(is_int, ngrams))):
        return ngrams
    raise ArgumentError(
        "TextVectorization: `ngrams` must be None, an integer or a tuple of integers; "
        f"received {ngrams!r}"
    )


def _map_text(function: Callable[[str], str], texts: Array) -> Array:
    result = np.empty(texts.size, object)
    result[:] = list(map(function, texts.reshape(-1).tolist()))
    return result.reshape(texts.shape)


def _widths_of(texts: Array) -> list[int]:
    """Return the number of characters per row of texts, padded to the longest."""
    lengths = list(map(len, texts.reshape(-1).tolist()))
    if len(lengths) == len(texts):
        return lengths
    columns = texts.size // max(len(texts), 1)
    rows = [lengths[i : i + columns] for i in range(0, len(lengths), columns or 1)]
    return [columns * max(row) for row in rows] if columns else [0] * len(texts)


def _in_order(rows: Array | Tensor, blocks: list[Array]) -> Any:
    """Reorder rows from the order of blocks to their original order."""
    return rows[np.argsort(np.concatenate(blocks))]


def _padded(indices: Array, lengths: list[int], width: int, fill: int = 0) -> Array:
    """Return consecutive rows of these lengths, padded to a width."""
    rows = np.full((len(lengths), width), fill, "int64")
    rows[np.arange(width) < np.array(lengths, "int64")[:, None]] = indices
    return rows


def _one_column(texts: Array) -> Array:
    if texts.ndim > 1 and texts.shape[-1] != 1:
        raise ShapeError(
            "TextVectorization: to split texts, the input rank must be 1 or the last "
            f"shape dimension must be 1; received shape {texts.shape}"
        )
    return texts
