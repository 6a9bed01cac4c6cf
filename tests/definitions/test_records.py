"""Test that a record equals a frozen dataclass and is compiled once."""

import copy
import inspect
import pickle
from dataclasses import (
    FrozenInstanceError,
    asdict,
    dataclass,
    field,
    fields,
    replace,
)
from typing import get_type_hints

import pytest

from toolkit.definitions.records import record


def _classes(define):
    @define
    class Point:
        """A point with a name."""

        x: int
        y: int = 2
        tags: list = field(default_factory=list)
        note: str = field(default="", repr=False, compare=False)
        last: int = field(default=0, kw_only=True)

        def __post_init__(self):
            if self.x < 0:
                raise ValueError("x is negative")

    @define
    class Deep(Point):
        z: int = 3

    return Point, Deep


RECORDS, FROZEN = _classes(record), _classes(dataclass(frozen=True))


@record
class Pair:
    """A record that can be pickled."""

    first: int
    second: tuple = ()


@pytest.mark.parametrize("which", [0, 1])
def test_record_has_the_attributes_of_a_frozen_dataclass(which):
    ours, theirs = RECORDS[which], FROZEN[which]
    for arguments in ((1,), (1, 5, [3])):
        a, b = ours(*arguments, last=4), theirs(*arguments, last=4)
        assert asdict(a) == asdict(b)
        assert repr(a) == repr(b)
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert [f.name for f in fields(ours)] == [f.name for f in fields(theirs)]
    assert ours.__match_args__ == theirs.__match_args__
    assert ours(1).tags is not ours(1).tags


@pytest.mark.parametrize("arguments", [(), (1, 2, [], "", 5, 6, 7)])
def test_invalid_arguments_are_refused(arguments):
    with pytest.raises(TypeError) as ours:
        RECORDS[0](*arguments)
    with pytest.raises(TypeError) as theirs:
        FROZEN[0](*arguments)
    assert str(ours.value) == str(theirs.value)
    with pytest.raises(ValueError, match="negative"):
        RECORDS[0](-1)


def test_equal_fields_are_equal_records():
    assert Pair(1, (2,)) == Pair(1, (2,))
    assert hash(Pair(1, (2,))) == hash(Pair(1, (2,)))
    assert Pair(1) != Pair(2)
    assert RECORDS[0](1, note="a") == RECORDS[0](1, note="b")
    assert RECORDS[0](1) != RECORDS[1](1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(RECORDS[0](1))
    nan = float("nan")
    assert Pair(nan) == Pair(nan)  # the same object, as in a tuple


def test_single_field_is_compared_like_several():
    @record
    class Alone:
        value: object

    nan = float("nan")
    assert Alone(nan) == Alone(nan)
    assert hash(Alone(1)) == hash(Alone(1))
    assert Alone(1) != Alone(2)


def test_record_without_fields():
    @record
    class Nothing:
        pass

    assert Nothing() == Nothing()
    assert hash(Nothing()) == hash(Nothing())
    assert repr(Nothing()).endswith("Nothing()")


def test_fields_are_read_only():
    pair = Pair(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'first'"):
        pair.first = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'first'"):
        del pair.first
    with pytest.raises(FrozenInstanceError):
        pair.other = 2
    assert pair.first == 1


def test_records_can_be_replaced_copied_and_pickled():
    pair = Pair(1, (2, 3))
    assert replace(pair, first=5) == Pair(5, (2, 3))
    assert copy.deepcopy(pair) == copy.copy(pair) == pair
    assert pickle.loads(pickle.dumps(pair)) == pair


def test_eq_false_compares_by_identity():
    @record(eq=False)
    class Node:
        name: str

    node = Node("a")
    assert node == node
    assert node != Node("a")
    assert hash(node) != hash(Node("a"))


def test_methods_of_the_class_are_kept():
    @record
    class Own:
        value: int

        def __repr__(self):
            return "own"

        def __hash__(self):
            return 7

        def __eq__(self, other):
            return True

    assert repr(Own(1)) == "own"
    assert hash(Own(1)) == 7
    assert Own(1) == Own(2)


def test_annotations_resolve_in_the_module():
    assert get_type_hints(Pair.__init__) == {
        "first": int,
        "second": tuple,
        "return": type(None),
    }


def test_field_names_do_not_clash_with_the_constructor():
    @record
    class Odd:
        self: int
        _set: int
        _made: list = field(default_factory=list)
        object: int = 3

    odd = Odd(1, 2)
    assert (odd.self, odd._set, odd._made, odd.object) == (1, 2, [], 3)


def test_fields_without_hash():
    @record
    class Partly:
        name: str
        found: list = field(default_factory=list, hash=False)

    assert hash(Partly("a")) == hash(Partly("a", [1]))
    assert Partly("a") != Partly("a", [1])


def test_plain_subclass_has_attributes():
    class Named(Pair):
        def __init__(self, first):
            super().__init__(first)
            self.name = "one"

    named = Named(1)
    assert (named.first, named.name) == (1, "one")
    del named.name
    with pytest.raises(FrozenInstanceError):
        named.first = 2
    with pytest.raises(FrozenInstanceError):
        del named.first


def _refused(definition):
    with pytest.raises(TypeError) as caught:
        record(type("Wrong", (), definition))
    return str(caught.value)


@pytest.mark.parametrize(
    "annotations, defaults, message",
    [
        ({"value": "int"}, {"value": field(default=0, init=False)}, "init=False"),
        ({"value": "InitVar[int]"}, {}, "InitVar"),
        ({"a": "int", "b": "int"}, {"a": 1}, "b: a field without a default"),
        ({"_record_set": "int"}, {}, "start with"),
        (
            {"a": "int"},
            {"__setattr__": lambda self, name, value: None},
            "cannot be assigned",
        ),
    ],
)
def test_invalid_records_are_refused(annotations, defaults, message):
    assert message in _refused({"__annotations__": annotations, **defaults})
