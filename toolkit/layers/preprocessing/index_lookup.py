"""IndexLookup: the common part of StringLookup and IntegerLookup."""

from __future__ import annotations

from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from toolkit import dtypes, ops, settings
from toolkit.core.convert import convert
from toolkit.core.strings import encode_text
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ArgumentTypeError
from toolkit.layers.preprocessing.encoding import (
    MODES,
    checked_mode,
    encode,
    encoded_shape,
)
from toolkit.layers.preprocessing.hashing import checked_salt, hash_bins
from toolkit.layers.preprocessing.host import refuse_sparse
from toolkit.layers.preprocessing.vocabulary import VocabularyLayer, lines_of, plain
from toolkit.layers.weights import choice
from toolkit.ops.symbolic import KerasTensor
from toolkit.type_aliases import Array, PolicyLike, Shape

_OOV = -2  # marks a value that is not in the vocabulary
_FILE = "vocabulary.txt"
_OOV_METHODS = ("floormod", "farmhash")
_CONFIG = (
    *("max_tokens", "num_oov_indices", "mask_token", "oov_token", "vocabulary_dtype"),
    *("invert", "output_mode", "sparse", "pad_to_max_tokens", "oov_method", "salt"),
)


class IndexLookup(VocabularyLayer):
    """Base class of lookups: maps vocabulary values to indices, or indices to values.

    The order of indices: 0 for the mask token, if there is one and outputs are indices;
    then the indices of out-of-vocabulary (OOV) values; then the vocabulary.

    Args:
        max_tokens: the maximum number of indices; None for no limit.
        num_oov_indices: the number of indices for OOV values; 0: an OOV value is an
            error.
        mask_token: the padding value; None for none.
        oov_token: the inverse of OOV indices.
        vocabulary_dtype: "string" or "int64".
        vocabulary: a list, an array, or the path of a text file with one per line.
        idf_weights: in mode "tf_idf", a weight for each entry of the vocabulary.
        invert: whether to map indices to values.
        output_mode: "int", "one_hot", "multi_hot", "count" or "tf_idf".
        sparse: must be False: sparse tensors are not supported.
        pad_to_max_tokens: whether codes always have `max_tokens` entries.
        oov_method: "floormod" or "farmhash": the assignment of integers to several OOV
            indices.
        salt: one or two integers, a key for the hash of strings.
        dtype: has no effect: the mode determines the output dtype.
    """

    def __init__(
        self,
        max_tokens: int | None,
        num_oov_indices: int,
        mask_token: Any,
        oov_token: Any,
        vocabulary_dtype: str,
        vocabulary: Any = None,
        idf_weights: Any = None,
        invert: bool = False,
        output_mode: str = "int",
        sparse: bool = False,
        pad_to_max_tokens: bool = False,
        oov_method: str = "floormod",
        name: str | None = None,
        salt: Any = None,
        vocabulary_size: int | None = None,
        has_input_vocabulary: bool | None = None,
        trainable: bool = True,
        dtype: PolicyLike | None = None,
    ) -> None:
        super().__init__(name=name, trainable=trainable)
        refuse_sparse(self, sparse)
        self.vocabulary_dtype: str = dtypes.standardize(vocabulary_dtype)
        self.max_tokens = max_tokens
        self.num_oov_indices = num_oov_indices
        self.mask_token = mask_token
        self.oov_token = oov_token
        self.invert = invert
        self.output_mode: str = checked_mode(self, output_mode, (*MODES, "tf_idf"))
        self.sparse = False
        self.pad_to_max_tokens = pad_to_max_tokens
        self.oov_method: str = choice(self, "oov_method", oov_method, _OOV_METHODS)
        self.salt: list[int] | None = checked_salt(self, salt)
        self._check_arguments(idf_weights)
        self.input_idf_weights: list[Any] | None = plain(self, idf_weights)
        from_file = isinstance(vocabulary, (str, Path))
        self.input_vocabulary: list[Any] | None = (
            None if from_file else plain(self, vocabulary)
        )
        if has_input_vocabulary is None:
            has_input_vocabulary = vocabulary is not None
        self._has_input_vocabulary = has_input_vocabulary
        self._frozen_size = vocabulary_size
        self._set_tokens([])
        self.reset_state()
        if vocabulary is not None:
            self.set_vocabulary(vocabulary, idf_weights)

    def _check_arguments(self, idf_weights: Any) -> None:
        problem = None
        if self.max_tokens is not None and self.max_tokens <= 1:
            problem = f"`max_tokens` must be greater than 1: {self.max_tokens}"
        elif self.pad_to_max_tokens and self.max_tokens is None:
            problem = "if pad_to_max_tokens is True, must set `max_tokens`"
        elif self.num_oov_indices < 0:
            problem = f"`num_oov_indices` must be >= 0: {self.num_oov_indices}"
        elif self.salt and not self._hashes_oov:
            problem = "`salt` can only be used when `oov_method='farmhash'`"
        elif self.invert and self.output_mode != "int":
            problem = f"`output_mode` must be 'int' to invert: {self.output_mode!r}"
        elif idf_weights is not None and self.output_mode != "tf_idf":
            problem = "`idf_weights` should only be set if `output_mode` is 'tf_idf'"
        if problem:
            raise ArgumentError(f"{type(self).__name__}: {problem}")

    # --- calls ------------------------------------------------------------------------

    def call(self, inputs: Any) -> Any:
        inputs = self._arrays(inputs)
        if self.invert:
            return self._reverse(inputs)
        return self._encode(self._lookup(inputs))

    def _lookup(self, inputs: Array) -> Array:
        """Return the index of each value; -1 for the mask token in codes."""
        of_text = self.vocabulary_dtype == dtypes.STRING
        if of_text != (inputs.dtype.kind == "O") and inputs.size:
            expected = "strings" if of_text else "integers"
            received = inputs.dtype if of_text else "string"
            raise ArgumentTypeError(
                f"{type(self).__name__} {self.name!r}: expected {expected}; received "
                f"data of dtype {received}"
            )
        if not of_text:
            inputs = inputs.astype("int64")
        values = inputs.reshape(-1).tolist()
        return self._indices_of(values).reshape(inputs.shape)

    def _indices_of(self, values: list[Any]) -> Array:
        """Return the index of each value of a list."""
        # In one call of C code: a step calls it for each word of a batch.
        looked_up = map(self._index.get, values, repeat(_OOV))
        indices = np.fromiter(looked_up, "int64", len(values))
        outside = np.flatnonzero(indices == _OOV).tolist()
        if outside:
            index_of = {}
            if self.mask_token is not None:
                index_of[self.mask_token] = 0 if self.output_mode == "int" else -1
            unknown = {values[i] for i in outside} - index_of.keys()
            index_of.update(self._unknown(list(unknown)))
            indices[outside] = [index_of[values[i]] for i in outside]
        return indices

    def _unknown(self, values: list[Any]) -> dict[Any, int]:
        """Return the indices of OOV values."""
        if not values:
            return {}
        if self.num_oov_indices == 0:
            raise ArgumentError(
                f"{type(self).__name__} {self.name!r}: with num_oov_indices=0 all "
                f"inputs should be in the vocabulary; found OOV values {values[:10]}"
            )
        array = np.array(
            values, object if self.vocabulary_dtype == dtypes.STRING else "int64"
        )
        if self.num_oov_indices == 1:
            bins = np.zeros(len(values), "int64")
        elif self._hashes_oov:
            bins = hash_bins(array, self.num_oov_indices, self.salt)
        else:
            bins = array % self.num_oov_indices
        return dict(zip(values, (bins + self._mask_count).tolist(), strict=True))

    def _depth(self) -> int | None:
        return self.max_tokens if self.pad_to_max_tokens else self._frozen_size

    def _encode(self, indices: Array) -> Tensor:
        if self.output_mode == "int":
            return convert(self._ready(indices))
        depth = self._depth()
        if depth is None:
            raise RuntimeError(
                f"{type(self).__name__} {self.name!r}: the encoding needs a "
                "vocabulary; pass `vocabulary`, or call `adapt` first"
            )
        if self.output_mode != "tf_idf":
            indices = self._ready(indices)
            return encode(indices, self.output_mode, depth, "int64")
        if self.idf_weights is None:
            raise RuntimeError(
                f"{type(self).__name__} {self.name!r}: `idf_weights` must be provided "
                "in mode 'tf_idf', or learned by `adapt`"
            )
        return ops.multiply(
            encode(indices, "count", depth, settings.floatx()), self.idf_weights
        )

    def _ready(self, indices: Array) -> Array:
        """Return the indices after a check that there is a vocabulary."""
        self.check_ready(f"{type(self).__name__} {self.name!r}")
        return indices

    def _reverse(self, inputs: Array) -> Any:
        vocabulary = dict(enumerate(self.get_vocabulary()))
        inputs = self._ready(inputs)
        values = [
            vocabulary.get(int(i), self.oov_token) for i in inputs.reshape(-1).tolist()
        ]
        if self.vocabulary_dtype != dtypes.STRING:
            return convert(np.array(values, "int64").reshape(inputs.shape))
        result = np.empty(len(values), object)
        result[:] = values
        return result.reshape(inputs.shape)

    def compute_output_shape(self, input_shape: Shape) -> Any:
        mode = "count" if self.output_mode == "tf_idf" else self.output_mode
        return encoded_shape(input_shape, mode, self._depth())

    def compute_output_spec(self, inputs: Any) -> Any:
        shape = self.compute_output_shape(inputs.shape)
        if self.output_mode == "tf_idf":
            return KerasTensor(shape, settings.floatx())
        if self.output_mode != "int":
            return KerasTensor(shape, "int64")
        return KerasTensor(shape, self.vocabulary_dtype if self.invert else "int64")

    # --- saving -----------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        arguments = {
            **{name: getattr(self, name) for name in _CONFIG},
            "vocabulary": self.input_vocabulary,
            "idf_weights": self.input_idf_weights,
            "vocabulary_size": self._frozen_size,
        }
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": None,
            **arguments,
        }

    def get_build_config(self) -> dict[str, Any]:
        return {}

    def build_from_config(self, config: Any) -> None:
        self.build(None)

    def save_own_variables(self, store: Any) -> None:
        if self.output_mode == "tf_idf":
            store["idf_weights"] = self.idf_weights

    def load_own_variables(self, store: Any) -> None:
        if self.output_mode == "tf_idf":
            self.__dict__["idf_weights"] = np.asarray(store["idf_weights"])

    def save_assets(self, dir_path: str) -> None:
        """Write the vocabulary to the folder, unless the config contains it.

        Args:
            dir_path: the folder of the vocabulary file.
        """
        if self.input_vocabulary is None:
            text = "\n".join(map(str, self.get_vocabulary()))
            Path(dir_path, _FILE).write_bytes(encode_text(text))

    def load_assets(self, dir_path: str | None) -> None:
        """Load the vocabulary of `save_assets`.

        Args:
            dir_path: the folder of the vocabulary file.
        """
        if self.input_vocabulary is not None or dir_path is None:
            return
        lines = lines_of(Path(dir_path, _FILE))
        while lines and lines[-1] == "":
            lines.pop()
        if len(lines) > self._special_count:
            weights = self.idf_weights
            size = self._frozen_size
            self._frozen_size = None
            if self.output_mode == "tf_idf" and weights is not None:
                weights = weights[: len(lines)]
            self.set_vocabulary(lines, weights)
            self._frozen_size = size or self._frozen_size
