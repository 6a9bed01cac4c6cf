"""Vocabularies of lookups: given, or learned by counting values."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from toolkit import dtypes, settings
from toolkit.core.strings import decode_bytes
from toolkit.errors import ArgumentError, ArgumentTypeError, NotBuiltError
from toolkit.layers.preprocessing.host import (
    AdaptableLayer,
    host_array,
    text_array,
)
from toolkit.reading.budget import check_temporary
from toolkit.reading.text import parse_number
from toolkit.type_aliases import Array

_BYTES_OF_ITEM = 24  # bytes of an item in a list and two copies


def plain(layer: Any, values: Any) -> list[Any] | None:
    """Return an array, tensor or list as a list of Python values."""
    return None if values is None else host_array(layer, values).tolist()


def lines_of(path: Path) -> list[str]:
    """Return the lines of a text file, one vocabulary entry each.

    Lines end with a line feed, as in Keras, or all of them as on Windows. An entry can
    contain other line separators, such as U+2028.
    """
    *lines, last = decode_bytes(path.read_bytes()).split("\n")
    if lines and all(line.endswith("\r") for line in lines):
        lines = [line[:-1] for line in lines]
    return [*lines, last] if last else lines


def _weights_of(vocabulary: list[Any], idf_weights: Any) -> Array:
    weights = np.asarray(idf_weights, "float64")
    if weights.shape != (len(vocabulary),):
        raise ArgumentError(
            "`idf_weights` must be the same length as vocabulary, "
            f"{len(vocabulary)}; received shape {weights.shape}"
        )
    return weights


class VocabularyLayer(AdaptableLayer):
    """Base class of lookups: special tokens, then a vocabulary, each with an index."""

    max_tokens: int | None
    num_oov_indices: int
    mask_token: Any
    oov_token: Any
    invert: bool
    output_mode: str
    oov_method: str
    pad_to_max_tokens: bool
    vocabulary_dtype: str
    _frozen_size: int | None
    _has_input_vocabulary: bool
    _tokens: list[Any]
    _index: dict[Any, int]
    _counts: Counter[Any]
    _document_counts: Counter[Any]
    _num_documents: int
    idf_weights: Array | None = None
    _adapted = False
    _trace_constants = ("_tokens",)

    # --- vocabulary -------------------------------------------------------------------

    @property
    def _hashes_oov(self) -> bool:
        return self.vocabulary_dtype == dtypes.STRING or self.oov_method == "farmhash"

    @property
    def compute_dtype(self) -> str:
        """Return the dtype of the inputs."""
        return "int64" if self.invert else self.vocabulary_dtype

    variable_dtype = compute_dtype

    @property
    def _specials(self) -> list[Any]:
        """Return the special tokens before the vocabulary."""
        mask = [self.mask_token] * self._mask_count
        nbytes = _BYTES_OF_ITEM * self.num_oov_indices
        check_temporary(nbytes, f"num_oov_indices={self.num_oov_indices:,}")
        return mask + [self.oov_token] * self.num_oov_indices

    @property
    def _special_count(self) -> int:
        return self._mask_count + self.num_oov_indices

    @property
    def _mask_count(self) -> int:
        return int(self.mask_token is not None and self.output_mode == "int")

    def check_ready(self, caller: str) -> None:
        """Raise unless there is a vocabulary, given or learned.

        Args:
            caller: the name of the method in the error.
        """
        if not self._tokens and not self._adapted:
            raise NotBuiltError(
                f"{caller}: the layer has no vocabulary yet; pass `vocabulary`, or "
                "call `adapt` before the layer is used"
            )

    def check_adaptable(self, caller: str) -> None:
        """Raise if the constructor received the vocabulary.

        Args:
            caller: the name of the method in the error.
        """
        if self._has_input_vocabulary:
            raise ArgumentError(
                f"{caller}: cannot adapt a layer that has a static vocabulary"
            )

    def _set_tokens(self, tokens: list[Any]) -> None:
        self.__dict__["_tokens"] = tokens
        start = self._special_count
        self.__dict__["_index"] = {token: start + i for i, token in enumerate(tokens)}
        self._mark_changed()

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[Any]:
        """Return the vocabulary, by default after the mask and OOV tokens.

        Args:
            include_special_tokens: whether to include the mask token and the OOV
                tokens.
        """
        specials = self._specials if include_special_tokens else []
        return specials + self._tokens

    def vocabulary_size(self) -> int:
        """Return the number of used indices, including special tokens."""
        return self._special_count + len(self._tokens)

    def set_vocabulary(self, vocabulary: Any, idf_weights: Any = None) -> None:
        """Set the vocabulary, and with mode "tf_idf" the weights.

        Args:
            vocabulary: a list or an array, which can start with the special tokens; or
                the path of a text file, whose lines are all terms, special tokens
                included.
            idf_weights: a weight for each entry.
        """
        if (self.output_mode == "tf_idf") != (idf_weights is not None):
            raise ArgumentError(
                f"{type(self).__name__}: `idf_weights` must be set if and only if "
                f"output_mode is 'tf_idf'; output_mode is {self.output_mode!r}"
            )
        from_file = isinstance(vocabulary, (str, Path))
        if from_file:
            vocabulary = self._read(Path(vocabulary))
        vocabulary = self._values(vocabulary)
        if not vocabulary:
            raise ArgumentError(
                f"{type(self).__name__}: cannot set an empty vocabulary"
            )
        count = self._special_count
        can_begin = 0 < count <= len(vocabulary) and not from_file
        has_specials = can_begin and vocabulary[:count] == self._specials
        tokens = vocabulary[count:] if has_specials else vocabulary
        self._check_tokens(tokens)
        self._check_size(count + len(tokens))
        self._set_tokens(tokens)
        if idf_weights is not None:
            weights = _weights_of(vocabulary, idf_weights)
            front = 0 if has_specials else count
            self._set_idf_weights(weights, front)

    def _values(self, vocabulary: Any) -> list[Any]:
        array = host_array(self, vocabulary)
        if self.vocabulary_dtype != dtypes.STRING:
            return list(map(self._integer, array.reshape(-1).tolist()))
        return text_array(self, array).reshape(-1).tolist()

    def _integer(self, value: Any) -> int:
        try:
            return parse_number(int, value) if isinstance(value, str) else int(value)
        except (TypeError, ValueError):
            raise ArgumentTypeError(
                f"{type(self).__name__} {self.name!r}: expected integers; received "
                f"{value!r}"
            ) from None

    def _read(self, path: Path) -> list[str]:
        if not path.is_file():
            raise ArgumentError(
                f"{type(self).__name__}: vocabulary file {str(path)!r} does not exist"
            )
        lines = lines_of(path)
        if "" in lines:
            raise ArgumentError(
                f"{type(self).__name__}: expected a term on each line of the "
                f"vocabulary file {str(path)!r}; line {lines.index('') + 1} is empty"
            )
        return lines

    def _check_tokens(self, tokens: list[Any]) -> None:
        repeated = [token for token, n in Counter(tokens).items() if n > 1]
        if repeated:
            raise ArgumentError(
                f"{type(self).__name__}: the vocabulary has at least one repeated "
                f"term: {repeated[:10]}"
            )
        reserved = {"mask": self.mask_token, "OOV": self.oov_token}
        if not self.invert:
            del reserved["OOV"]
        for kind, token in reserved.items():
            if token is not None and token in tokens:
                raise ArgumentError(
                    f"{type(self).__name__}: found reserved {kind} token {token!r} at "
                    "an unexpected location; a vocabulary has special tokens only at "
                    f"its start, in this order: {self._specials}"
                )

    def _check_size(self, size: int) -> None:
        if self.max_tokens is not None and size > self.max_tokens:
            raise ArgumentError(
                f"{type(self).__name__}: attempted to set a vocabulary larger than the "
                f"maximum vocab size, {self.max_tokens}; received {size} tokens"
            )
        if self.output_mode == "int" or self.pad_to_max_tokens:
            return
        if self._frozen_size not in (None, size):
            raise RuntimeError(
                f"{type(self).__name__} {self.name!r}: the vocabulary size cannot "
                f"change from {self._frozen_size} to {size}, because that would "
                "change the output shape"
            )
        self._frozen_size = size

    def _set_idf_weights(self, weights: Array, front: int) -> None:
        """Store weights after `front` mean weights, padded to `max_tokens`."""
        mean = weights.mean() if weights.size else 0.0
        weights = np.concatenate([np.full(front, mean), weights])
        if self.pad_to_max_tokens and self.max_tokens is not None:
            weights = np.pad(weights, (0, self.max_tokens - len(weights)))
        self.__dict__["idf_weights"] = weights.astype(settings.floatx())

    def _check_room(self, terms: list[Any]) -> None:
        """Raise if special tokens leave no index for the vocabulary."""
        if terms and self.max_tokens is not None:
            if self.max_tokens <= len(self._specials):
                raise ArgumentError(
                    f"{type(self).__name__} {self.name!r}: "
                    f"max_tokens={self.max_tokens} leaves no index for a vocabulary "
                    f"after the special tokens {self._specials}"
                )

    # --- learning ---------------------------------------------------------------------

    def update_state(self, data: Any) -> None:
        """Count the values in a batch: (documents, values), or one document.

        Args:
            data: an array, or nested lists, of tokens.
        """
        self.check_adaptable(f"{type(self).__name__} {self.name!r}")
        array = host_array(self, data)
        rows = 1 if array.ndim < 2 else len(array)
        documents = array.reshape(rows, array.size // max(rows, 1))
        self._count(self._values(document) for document in documents)

    def _count(self, documents: Any) -> None:
        for document in documents:
            self._counts.update(document)
            self._document_counts.update(set(document))
            self._num_documents += 1

    def reset_state(self) -> None:
        self.__dict__["_counts"] = Counter()
        self.__dict__["_document_counts"] = Counter()
        self.__dict__["_num_documents"] = 0

    def finalize_state(self) -> None:
        self.__dict__["_adapted"] = True
        if self._has_input_vocabulary or not self._counts:
            self._check_size(self.vocabulary_size())
            return
        for token in (self.mask_token, self.oov_token):
            self._counts.pop(token, None)
        order = sorted(self._counts, key=lambda t: (self._counts[t], t), reverse=True)
        specials = len(self._specials)
        if self.max_tokens:
            self._check_room(order)
            order = order[: self.max_tokens - specials]
        self._check_size(specials + len(order))
        self._set_tokens(order)
        if self.output_mode == "tf_idf":
            counts = np.array([self._document_counts[token] for token in order])
            self._set_idf_weights(
                np.log(1 + self._num_documents / (1 + counts)), specials
            )
        self.reset_state()
