"""SequenceExample messages: features of a sequence (context) and of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from toolkit.data.examples import (
    Feature,
    FixedLenSequenceFeature,
    VarLenFeature,
    check_feature,
    encode_feature,
    encode_features,
    encode_field,
    message_fields,
    read_features,
    read_lists,
    stack_features,
)
from toolkit.data.padding import Ragged, as_ragged, pad
from toolkit.data.structure import (
    numpy_dtype,
)
from toolkit.errors import ArgumentError, MalformedDataError, UnsupportedError
from toolkit.type_aliases import Array

_CONTEXT, _LISTS = 1, 2  # field numbers
Lists = dict[str, list[Array]]


def make_sequence_example(
    context: Mapping[str, Any], sequences: Mapping[str, Any]
) -> bytes:
    """Return a serialized SequenceExample.

    Args:
        context: name -> values of the whole sequence, as for `make_example`.
        sequences: name -> values of each step.

    Returns:
        The message.

    Example:
        >>> from toolkit.data import make_sequence_example, read_sequence_example
        >>> message = make_sequence_example({"n": [2]}, {"x": [[1, 2], [3]]})
        >>> [step.tolist() for step in read_sequence_example(message)[1]["x"]]
        [[1, 2], [3]]
    """
    lists = b"".join(
        encode_field(
            1,
            encode_field(1, name.encode())
            + encode_field(
                2, b"".join(encode_field(1, encode_feature(name, s)) for s in steps)
            ),
        )
        for name, steps in sequences.items()
    )
    head = encode_field(_CONTEXT, encode_features(context))
    return head + encode_field(_LISTS, lists)


def read_sequence_example(serialized: bytes) -> tuple[dict[str, Array], Lists]:
    """Read all features of a SequenceExample: (context, sequences).

    Args:
        serialized: the message.

    Returns:
        name -> array of values of the whole sequence, and name -> list with one array
        for each step.

    Example:
        >>> from toolkit.data import make_sequence_example, read_sequence_example
        >>> message = make_sequence_example({"n": [2]}, {"x": [[1, 2], [3]]})
        >>> context, sequences = read_sequence_example(message)
        >>> context["n"].tolist(), len(sequences["x"])
        ([2], 2)
    """
    context: dict[str, Array] = {}
    lists: Lists = {}
    try:
        for number, _, value in message_fields(memoryview(serialized)):
            if number == _CONTEXT:
                context |= read_features(value)
            elif number == _LISTS:
                lists |= _read_feature_lists(value)
    except (ValueError, IndexError, TypeError) as error:
        raise MalformedDataError(
            f"parse_sequence_example: not a SequenceExample message: {error}"
        ) from error
    return context, lists


def _read_feature_lists(message: memoryview) -> Lists:
    lists: Lists = {}
    for _, _, entry in message_fields(message):
        fields = {number: value for number, _, value in message_fields(entry)}
        name = bytes(fields.get(1, b"")).decode()
        lists[name] = [
            next((values for _, values in read_lists(step)), np.zeros(0, np.int64))
            for _, _, step in message_fields(fields.get(2, memoryview(b"")))
        ]
    return lists


def parse_single_sequence_example(
    serialized: bytes,
    context_features: Mapping[str, Feature],
    sequence_features: Mapping[str, Feature],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parse the requested features of a SequenceExample into arrays.

    Args:
        serialized: the message.
        context_features: name -> specification for the whole sequence.
        sequence_features: name -> specification for the steps. A
            FixedLenSequenceFeature gives an array of shape (steps, *shape), a
            VarLenFeature a Ragged.

    Returns:
        name -> array for the whole sequence, and name -> array or Ragged for the steps.

    Raises:
        MalformedDataError: the message is not a SequenceExample, or a feature is
            missing.
        ShapeError, DTypeError: the values of a feature do not match its specification.

    Example:
        >>> from toolkit import data
        >>> message = data.make_sequence_example({"n": [2]}, {"x": [[1, 2], [3]]})
        >>> context, steps = data.parse_single_sequence_example(
        ...     message,
        ...     {"n": data.FixedLenFeature((), "int64")},
        ...     {"x": data.VarLenFeature("int64")},
        ... )
        >>> context["n"].tolist(), steps["x"].to_list()
        (2, [[1, 2], [3]])
    """
    if not context_features and not sequence_features:
        raise ArgumentError(
            "parse_sequence_example: expected context_features or sequence_features; "
            "received none"
        )
    context, lists = read_sequence_example(serialized)
    return (
        {n: check_feature(n, f, context.get(n)) for n, f in context_features.items()},
        {n: _steps(n, f, lists.get(n)) for n, f in sequence_features.items()},
    )


def _steps(name: str, feature: Any, steps: list[Array] | None) -> Any:
    """Return the values of all steps."""
    dtype = numpy_dtype(feature.dtype)
    if isinstance(feature, VarLenFeature):
        rows = [check_feature(name, feature, step) for step in steps or []]
        return (
            as_ragged(rows)
            if rows
            else Ragged(np.zeros(0, dtype), np.zeros(1, np.int64))
        )
    if not isinstance(feature, FixedLenSequenceFeature):
        raise ArgumentError(
            f"parse_sequence_example: expected a FixedLenSequenceFeature or a "
            f"VarLenFeature for {name!r}; received {feature!r:.80}"
        )
    if steps is None and not feature.allow_missing:
        raise MalformedDataError(
            f"parse_sequence_example: the message has no feature list {name!r}; with "
            "allow_missing=True, a missing list has no steps"
        )
    rows = [feature.check_step(name, step) for step in steps or []]
    return np.array(rows, dtype).reshape(-1, *feature.shape)


def parse_sequence_example(
    serialized: Any,
    context_features: Mapping[str, Feature],
    sequence_features: Mapping[str, Feature],
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Parse a batch of SequenceExamples; also return the numbers of steps.

    Args:
        serialized: a sequence of messages.
        context_features: as for `parse_single_sequence_example`.
        sequence_features: name -> FixedLenSequenceFeature; steps are padded with its
            default value.

    Returns:
        The context features, the sequence features, and for each sequence feature the
        int64 array of step counts.

    Raises:
        UnsupportedError: a sequence feature has a variable number of values per step.

    Example:
        >>> from toolkit import data
        >>> message = data.make_sequence_example({"n": [2]}, {"x": [[1], [3]]})
        >>> context, steps, counts = data.parse_sequence_example(
        ...     [message],
        ...     {"n": data.FixedLenFeature((), "int64")},
        ...     {},
        ... )
        >>> context["n"].tolist()
        [2]
    """
    for name, feature in sequence_features.items():
        if not isinstance(feature, FixedLenSequenceFeature):
            raise UnsupportedError(
                f"parse_sequence_example: steps of {name!r} have a variable number "
                "of values; parse one sequence at a time by "
                "parse_single_sequence_example"
            )
    rows = [
        parse_single_sequence_example(message, context_features, sequence_features)
        for message in serialized
    ]
    context = {
        name: stack_features(feature, [row[0][name] for row in rows])
        for name, feature in context_features.items()
    }
    steps, counts = {}, {}
    for name, feature in sequence_features.items():
        values = [row[1][name] for row in rows]
        counts[name] = np.array([len(x) for x in values], np.int64)
        steps[name] = pad(values, None, getattr(feature, "default_value", None))
    return context, steps, counts
