"""StringLookup and IntegerLookup: values of a vocabulary to indices, and back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from toolkit import ops
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.layers.preprocessing.index_lookup import IndexLookup
from toolkit.type_aliases import Array, LookupOptions


class StringLookup(IndexLookup):
    """Layer that maps strings of a vocabulary to indices, or indices to strings.

    Index 0 is for the mask token if there is one and outputs are indices. The indices
    of out-of-vocabulary (OOV) strings are next, then the vocabulary.

    Args:
        max_tokens: the maximum number of indices; None for no limit.
        num_oov_indices: the number of indices for OOV strings, assigned by hash; 0: an
            OOV string is an error.
        mask_token: the padding string; None for none.
        oov_token: the inverse of OOV indices.
        vocabulary: a list, an array, or the path of a text file with one per line;
            None: `adapt` learns it, the most frequent strings first.
        idf_weights: in mode "tf_idf", a weight for each entry of the vocabulary.
        invert: whether to map indices to strings.
        output_mode: "int", "one_hot", "multi_hot", "count" or "tf_idf".
        pad_to_max_tokens: whether codes always have `max_tokens` entries.
        sparse: must be False: sparse tensors are not supported.
        encoding: the encoding of bytes.
        salt: one or two integers, a key for the hash.
        name: the name; generated from the class name if None.

    Call arguments:
        inputs: an array, or nested lists, of strings; with `invert` of integers.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.StringLookup(vocabulary=["a", "b"])
        >>> layer([["a", "z"], ["b", "a"]]).tolist()
        [[1, 0], [2, 1]]
    """

    def __init__(
        self,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        mask_token: str | None = None,
        oov_token: str | None = "[UNK]",
        vocabulary: str | Path | Sequence[Any] | None = None,
        idf_weights: Any = None,
        invert: bool = False,
        output_mode: str = "int",
        pad_to_max_tokens: bool = False,
        sparse: bool = False,
        encoding: str = "utf-8",
        name: str | None = None,
        salt: Any = None,
        **kwargs: Unpack[LookupOptions],
    ) -> None:
        self.encoding = encoding
        super().__init__(
            max_tokens=max_tokens,
            num_oov_indices=num_oov_indices,
            mask_token=mask_token,
            oov_token=oov_token,
            vocabulary_dtype="string",
            vocabulary=vocabulary,
            idf_weights=idf_weights,
            invert=invert,
            output_mode=output_mode,
            sparse=sparse,
            pad_to_max_tokens=pad_to_max_tokens,
            name=name,
            salt=salt,
            **kwargs,
        )

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["vocabulary_dtype"]
        return {**config, "encoding": self.encoding}


class IntegerLookup(IndexLookup):
    """Layer that maps integers of a vocabulary to indices, or indices to integers.

    Indices are as in StringLookup. Compiled functions can include the layer, unless OOV
    integers are an error or are assigned by hash.

    Args:
        max_tokens: the maximum number of indices; None for no limit.
        num_oov_indices: the number of indices for OOV integers; 0: an OOV integer is an
            error.
        mask_token: the padding integer; None for none.
        oov_token: the inverse of OOV indices.
        vocabulary: a list, an array, or the path of a text file with one per line;
            None: `adapt` learns it, the most frequent integers first.
        vocabulary_dtype: only "int64".
        idf_weights: in mode "tf_idf", a weight for each entry of the vocabulary.
        invert: whether to map indices to integers of the vocabulary.
        output_mode: "int", "one_hot", "multi_hot", "count" or "tf_idf".
        sparse: must be False: sparse tensors are not supported.
        pad_to_max_tokens: whether codes always have `max_tokens` entries.
        oov_method: the assignment of several OOV indices: "floormod" by the remainder,
            "farmhash" by the hash of the decimal string.
        salt: one or two integers, a key for the hash.
        name: the name; generated from the class name if None.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.IntegerLookup(vocabulary=[12, 36])
        >>> layer([[12, 7], [36, 12]]).tolist()
        [[1, 0], [2, 1]]
    """

    def __init__(
        self,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        mask_token: int | None = None,
        oov_token: int | None = -1,
        vocabulary: str | Path | Sequence[Any] | None = None,
        vocabulary_dtype: str = "int64",
        idf_weights: Any = None,
        invert: bool = False,
        output_mode: str = "int",
        sparse: bool = False,
        pad_to_max_tokens: bool = False,
        oov_method: str = "floormod",
        salt: Any = None,
        name: str | None = None,
        **kwargs: Unpack[LookupOptions],
    ) -> None:
        if vocabulary_dtype != "int64":
            raise ArgumentError(
                "IntegerLookup: only `vocabulary_dtype='int64'` is supported; received "
                f"{vocabulary_dtype!r}"
            )
        super().__init__(
            max_tokens=max_tokens,
            num_oov_indices=num_oov_indices,
            mask_token=mask_token,
            oov_token=oov_token,
            vocabulary_dtype=vocabulary_dtype,
            vocabulary=vocabulary,
            idf_weights=idf_weights,
            invert=invert,
            output_mode=output_mode,
            sparse=sparse,
            pad_to_max_tokens=pad_to_max_tokens,
            oov_method=oov_method,
            salt=salt,
            name=name,
            **kwargs,
        )

    @property
    def supports_jit(self) -> bool:  # type: ignore[override]
        """Return whether compiled functions can include the lookup."""
        shared = self.num_oov_indices > 1 and self.oov_method == "farmhash"
        return self.invert or (self.num_oov_indices > 0 and not shared)

    def _runs_before_program(self, inputs: object) -> bool:
        return not self.supports_jit and super()._runs_before_program(inputs)

    def _arrays(self, inputs: Any) -> Any:
        traced = isinstance(inputs, Tensor) and inputs.static_value() is None
        return inputs if traced and self.supports_jit else super()._arrays(inputs)

    def _lookup(self, inputs: Array | Tensor) -> Any:
        if not isinstance(inputs, Tensor):
            return super()._lookup(inputs)
        inputs = ops.cast(inputs, "int64")
        result = inputs % max(self.num_oov_indices, 1) + self._mask_count
        if self._tokens:
            order = np.argsort(self._tokens)
            keys = np.array(self._tokens, "int64")[order]
            position = ops.searchsorted(keys, ops.reshape(inputs, (-1,)))
            position = ops.reshape(ops.minimum(position, len(keys) - 1), inputs.shape)
            is_term = ops.equal(ops.take(keys, position), inputs)
            indices = order + self._special_count
            result = ops.where(is_term, ops.take(indices, position), result)
        if self.mask_token is not None:
            masked = 0 if self.output_mode == "int" else -1
            result = ops.where(ops.equal(inputs, self.mask_token), masked, result)
        return ops.cast(result, "int64")

    def _reverse(self, inputs: Array | Tensor) -> Tensor:
        if not isinstance(inputs, Tensor):
            return super()._reverse(inputs)
        values = [self.oov_token if v is None else v for v in self.get_vocabulary()]
        table = np.array([*values, self.oov_token], "int64")
        is_outside = ops.logical_or(inputs < 0, inputs >= len(values))
        return ops.take(table, ops.where(is_outside, len(values), inputs))
