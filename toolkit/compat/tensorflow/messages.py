"""The messages of `tf.train`: Example, Feature, and lists of values."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from toolkit import data
from toolkit.compat.tensorflow.string_tensors import to_single_bytes
from toolkit.data.examples import (
    BYTES_LIST,
    FLOAT_LIST,
    INT64_LIST,
    encode_feature,
    encode_features,
    encode_field,
    message_fields,
    read_features,
    read_list,
    read_lists,
)
from toolkit.errors import ArgumentError, ArgumentTypeError


class Message:
    """A Protocol Buffers message: the bytes of a record."""

    def SerializeToString(self) -> bytes:
        """Return the bytes of the message."""
        raise NotImplementedError

    @classmethod
    def FromString(cls, serialized: Any) -> Self:
        """Parse the message in bytes."""
        message = cls()
        message.ParseFromString(serialized)
        return message

    def ParseFromString(self, serialized: Any) -> None:
        """Replace the content by the message in bytes."""
        raise NotImplementedError

    def _lines(self) -> list[str]:
        """Return the message as text, line by line."""
        raise NotImplementedError

    def __str__(self) -> str:
        return "".join(f"{line}\n" for line in self._lines())

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return False
        return self.SerializeToString() == other.SerializeToString()

    __hash__ = object.__hash__


class _List(Message):
    """The values of a feature."""

    _field, _number = "", 0

    def __init__(self, value: Any = ()) -> None:
        self.value: list[Any] = list(value)

    def items(self) -> Any:
        """Return the values in toolkit's form."""
        raise NotImplementedError

    def SerializeToString(self) -> bytes:
        """Return the bytes of the message."""
        if not self.value:
            return b""
        feature = memoryview(encode_feature("", self.items()))
        return b"".join(bytes(message) for _, _, message in message_fields(feature))

    def ParseFromString(self, serialized: Any) -> None:
        """Replace the values by the message in bytes."""
        message = to_single_bytes(serialized, "ParseFromString")
        self.value = read_list(self._number, memoryview(message)).tolist()

    def _lines(self) -> list[str]:
        return [f"value: {_shown(value)}" for value in self.value]


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        text = repr(value)[2:-1]
        return '"' + text.replace('"', '\\"') + '"'
    return f"{value:.9g}" if isinstance(value, float) else str(value)


class BytesList(_List):
    """A list of bytes."""

    _field, _number = "bytes_list", BYTES_LIST

    def items(self) -> Any:
        """Return the values as bytes."""
        return [to_single_bytes(value, "Feature") for value in self.value]


class FloatList(_List):
    """A list of floats."""

    _field, _number = "float_list", FLOAT_LIST

    def items(self) -> Any:
        """Return the values as float32."""
        return np.asarray(self.value, "float32")


class Int64List(_List):
    """A list of integers.

    Raises:
        ArgumentTypeError: a value is not an integer.
    """

    _field, _number = "int64_list", INT64_LIST

    def __init__(self, value: Any = ()) -> None:
        super().__init__(value)
        for number in self.value:
            if not hasattr(number, "__index__"):
                raise ArgumentTypeError(
                    f"Int64List: expected integers; received {number!r}"
                )

    def items(self) -> Any:
        """Return the values as int64."""
        return np.asarray(self.value, "int64")


class Feature(Message):
    """A list of values of one kind."""

    def __init__(
        self,
        bytes_list: BytesList | None = None,
        float_list: FloatList | None = None,
        int64_list: Int64List | None = None,
    ) -> None:
        lists = [x for x in (bytes_list, float_list, int64_list) if x is not None]
        if len(lists) > 1:
            raise ArgumentError(f"Feature: expected one list; received {len(lists)}")
        self.bytes_list: BytesList = bytes_list or BytesList()
        self.float_list: FloatList = float_list or FloatList()
        self.int64_list: Int64List = int64_list or Int64List()
        self._kind = lists[0]._field if lists else None

    def WhichOneof(self, oneof_group: str) -> str | None:
        """Return the name of the list in the feature.

        `oneof_group` has no effect: the lists are the only group.
        """
        filled = [x._field for x in self._lists() if x.value]
        return filled[0] if filled else self._kind

    def _lists(self) -> tuple[_List, ...]:
        return (self.bytes_list, self.float_list, self.int64_list)

    def values(self) -> Any:
        """Return the values in toolkit's form."""
        filled = [x for x in self._lists() if x.value]
        return filled[0].items() if filled else np.zeros(0, "int64")

    def SerializeToString(self) -> bytes:
        """Return the bytes of the message."""
        return encode_feature("", self.values()) if self.WhichOneof("kind") else b""

    def ParseFromString(self, serialized: Any) -> None:
        """Replace the list by the message in bytes."""
        message = to_single_bytes(serialized, "ParseFromString")
        self._kind = None
        for candidate in self._lists():
            candidate.value = []
        for number, values in read_lists(memoryview(message)):
            candidate = self._lists()[number - 1]
            candidate.value, self._kind = values.tolist(), candidate._field

    def _lines(self) -> list[str]:
        kind = self.WhichOneof("kind")
        if kind is None:
            return []
        return _nested(kind, getattr(self, kind)._lines())


def to_feature(values: Any) -> Feature:
    """Return the feature of an array of bytes, floats or integers."""
    kind, items = values.dtype.kind, values.tolist()
    return Feature(
        BytesList(items) if kind == "O" else None,
        FloatList(items) if kind == "f" else None,
        Int64List(items) if kind == "i" else None,
    )


def _nested(name: str, lines: list[str]) -> list[str]:
    return [f"{name} {{", *(f"  {line}" for line in lines), "}"]


class Features(Message):
    """Names and their features."""

    def __init__(self, feature: dict[str, Feature] | None = None) -> None:
        self.feature: dict[str, Feature] = dict(feature or {})

    def SerializeToString(self) -> bytes:
        """Return the bytes of the message."""
        return encode_features({name: f.values() for name, f in self.feature.items()})

    def ParseFromString(self, serialized: Any) -> None:
        """Replace the features by the message in bytes."""
        message = to_single_bytes(serialized, "ParseFromString")
        self.feature = {}
        for name, values in read_features(memoryview(message)).items():
            self.feature[name] = to_feature(values)

    def _lines(self) -> list[str]:
        lines = []
        for name in sorted(self.feature):
            entry = [f'key: "{name}"', *_nested("value", self.feature[name]._lines())]
            lines += _nested("feature", entry)
        return lines


class Example(Message):
    """The content of a record: named features.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[3]))
        >>> tf.train.Example(features=tf.train.Features(feature={"x": feature}))
        features {
          feature {
            key: "x"
            value {
              int64_list {
                value: 3
              }
            }
          }
        }
        <BLANKLINE>
    """

    def __init__(self, features: Features | None = None) -> None:
        self.features: Features = features or Features()

    def SerializeToString(self) -> bytes:
        """Return the bytes of the message, for a record."""
        return data.make_example(
            {name: f.values() for name, f in self.features.feature.items()}
        )

    def ParseFromString(self, serialized: Any) -> None:
        """Replace the features by the message in bytes."""
        message = to_single_bytes(serialized, "ParseFromString")
        self.features = Features()
        for name, values in data.read_example(message).items():
            self.features.feature[name] = to_feature(values)

    def _lines(self) -> list[str]:
        return _nested("features", self.features._lines())


class FeatureList(Message):
    """The features of the steps in a sequence."""

    def __init__(self, feature: Any = ()) -> None:
        self.feature: list[Feature] = list(feature)

    def SerializeToString(self) -> bytes:
        """Return the bytes of the message."""
        steps = (step.SerializeToString() for step in self.feature)
        return b"".join(encode_field(1, step) for step in steps)

    def ParseFromString(self, serialized: Any) -> None:
        """Replace the features by the message in bytes."""
        message = memoryview(to_single_bytes(serialized, "ParseFromString"))
        steps = (bytes(step) for _, _, step in message_fields(message))
        self.feature = [Feature.FromString(step) for step in steps]

    def _lines(self) -> list[str]:
        steps = (_nested("feature", step._lines()) for step in self.feature)
        return [line for step in steps for line in step]


class FeatureLists(Message):
    """Names and the features of steps."""

    def __init__(self, feature_list: dict[str, FeatureList] | None = None) -> None:
        self.feature_list: dict[str, FeatureList] = dict(feature_list or {})

    def SerializeToString(self) -> bytes:
        """Return the bytes of the message."""
        return b"".join(
            encode_field(
                1,
                encode_field(1, name.encode())
                + encode_field(2, steps.SerializeToString()),
            )
            for name, steps in self.feature_list.items()
        )

    def ParseFromString(self, serialized: Any) -> None:
        """Replace the features by the message in bytes."""
        message = memoryview(to_single_bytes(serialized, "ParseFromString"))
        self.feature_list = {}
        for _, _, entry in message_fields(message):
            fields = {
                number: bytes(value) for number, _, value in message_fields(entry)
            }
            name = fields.get(1, b"").decode()
            self.feature_list[name] = FeatureList.FromString(fields.get(2, b""))

    def _lines(self) -> list[str]:
        lines = []
        for name in sorted(self.feature_list):
            steps = _nested("value", self.feature_list[name]._lines())
            lines += _nested("feature_list", [f'key: "{name}"', *steps])
        return lines


class SequenceExample(Message):
    """The content of a record for a sequence: context features and step features."""

    def __init__(
        self,
        context: Features | None = None,
        feature_lists: FeatureLists | None = None,
    ) -> None:
        self.context: Features = context or Features()
        self.feature_lists: FeatureLists = feature_lists or FeatureLists()

    def SerializeToString(self) -> bytes:
        """Return the bytes of the message, for a record."""
        fields = (
            self.context.SerializeToString(),
            self.feature_lists.SerializeToString(),
        )
        return b"".join(
            encode_field(number, field)
            for number, field in enumerate(fields, 1)
            if field
        )

    def ParseFromString(self, serialized: Any) -> None:
        """Replace the features by the message in bytes."""
        message = memoryview(to_single_bytes(serialized, "ParseFromString"))
        fields = {number: bytes(value) for number, _, value in message_fields(message)}
        self.context = Features.FromString(fields.get(1, b""))
        self.feature_lists = FeatureLists.FromString(fields.get(2, b""))

    def _lines(self) -> list[str]:
        context = _nested("context", self.context._lines())
        return context + _nested("feature_lists", self.feature_lists._lines())
