"""Test that the state of a layer is ordered by insertion in any container, as in Keras.

The orders are those of Keras 3.15, except for replaced attributes and items: Keras
continues to own the old objects.
"""

import copy
import gc
import pickle
import weakref
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest

import toolkit
from toolkit import layers
from toolkit.layers import tracking
from toolkit.layers.containers import OwnedDict, OwnedList, OwnedSet


def dense(name):
    return layers.Dense(2, name=name)


class Owner(layers.Layer):
    """A layer with any attributes."""

    @property
    def order(self):
        return " ".join(layer.name for layer in self._sublayers())


class Pairs(toolkit.Model):
    """A layer with lists that are filled alternately."""

    def __init__(self):
        super().__init__()
        self.queries, self.keys = [], []
        for i in range(3):
            self.queries.append(dense(f"q{i}"))
            self.keys.append(dense(f"k{i}"))

    def call(self, x):
        for query, key in zip(self.queries, self.keys, strict=True):
            x = query(x) * key(x)
        return x


def test_alternately_filled_lists_are_ordered_by_insertion():
    model = Pairs()
    model(np.ones((1, 2), "float32"))
    names = [v.path.split("/")[-2] for v in model.weights]
    assert names[::2] == names[1::2] == ["q0", "k0", "q1", "k1", "q2", "k2"]


def test_list_items_follow_earlier_attributes():
    owner = Owner()
    owner.parts, owner.head, earlier_layer = [], dense("head"), dense("early")
    owner.parts.insert(0, dense("b0"))
    owner.parts.insert(0, dense("b1"))
    owner.parts.append(earlier_layer)
    owner.named = {}
    owner.named["z"] = dense("z")
    owner.parts += [dense("plus")]
    owner.named |= {"a": dense("a")}
    owner.last = owner.parts.pop(0)
    owner.nest = [[dense("n0")], {"k": dense("n1")}]
    owner.nest[0].append(dense("n2"))
    assert owner.order == "head b0 early z plus a b1 n0 n1 n2"


CHANGES = {
    "append": lambda x, a, b: x.append(a),
    "insert": lambda x, a, b: x.insert(0, a),
    "extend": lambda x, a, b: x.extend(iter([a, b])),
    "[]": lambda x, a, b: x.__setitem__(0, a),
    "[:]": lambda x, a, b: x.__setitem__(slice(0, 1), iter([a, b])),
    "del": lambda x, a, b: x.__delitem__(0),
    "del [:]": lambda x, a, b: x.__delitem__(slice(0, 2)),
    "pop": lambda x, a, b: x.pop(),
    "remove": lambda x, a, b: x.remove(x[1]),
    "clear": lambda x, a, b: x.clear(),
    "reverse": lambda x, a, b: x.reverse(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_list_methods_update_the_order(change):
    first, second, a, b = map(dense, ("first", "second", "a", "b"))
    owner, expected = Owner(), [first, second]
    owner.parts = [first, second]
    assert change(expected, a, b) == change(owner.parts, a, b)
    assert type(owner.parts) is OwnedList and owner.parts == expected
    owner.later = dense("later")
    remaining = [x for x in (first, second) if x in expected]
    inserted = [x for x in expected if x not in remaining]
    assert owner.order == " ".join(x.name for x in [*remaining, *inserted, owner.later])


DICT_CHANGES = {
    "[]": lambda x, a, b: x.__setitem__("a", a),
    "update": lambda x, a, b: x.update({"a": a}, b=b),
    "setdefault": lambda x, a, b: (x.setdefault("a", a), x.setdefault("first", b))[0],
    "del": lambda x, a, b: x.__delitem__("first"),
    "pop": lambda x, a, b: (x.pop("first"), x.pop("none", 3))[1],
    "popitem": lambda x, a, b: x.popitem(),
    "clear": lambda x, a, b: x.clear(),
}


@pytest.mark.parametrize("change", DICT_CHANGES.values(), ids=DICT_CHANGES)
def test_dict_methods_update_the_order(change):
    first, second, a, b = map(dense, ("first", "second", "a", "b"))
    owner, expected = Owner(), {"first": first, "second": second}
    owner.parts = dict(expected)
    result, expected_result = change(owner.parts, a, b), change(expected, a, b)
    assert result == expected_result and type(owner.parts) is OwnedDict
    assert list(owner.parts.items()) == list(expected.items())
    owner.later = dense("later")
    remaining = [x for x in (first, second) if x in expected.values()]
    inserted = [x for x in (a, b) if x in expected.values()]
    assert owner.order == " ".join(x.name for x in [*remaining, *inserted, owner.later])


def test_set_methods_update_the_order():
    first, a, b, c, d = map(dense, ("first", *"abcd"))
    owner = Owner()
    owner.parts = {first}
    owner.parts.add(a)
    owner.between = dense("between")
    owner.parts.update([b], {c})
    owner.parts |= {d}
    assert type(owner.parts) is OwnedSet and owner.parts == {first, a, b, c, d}
    assert owner.order == "first a between b c d"
    owner.parts.discard(b)
    owner.parts.remove(a)
    with pytest.raises(KeyError):
        owner.parts.remove(a)
    assert owner.order == "first between c d"
    while owner.parts:
        owner.parts.pop()
    assert owner.order == "between"
    owner.parts.update([a, b])
    owner.parts.clear()
    assert owner.order == "between"
    with pytest.raises(KeyError):
        owner.parts.pop()


def test_reinserted_item_is_last():
    owner, layer = Owner(), dense("part")
    owner.parts = [layer, dense("other")]
    owner.parts.remove(layer)
    owner.parts.append(layer)
    assert owner.order == "other part"
    owner.one = dense("one")
    owner.one = dense("two")
    assert owner.order == "other part two"


PLACES = {
    "a longer list": (lambda o, a, b: setattr(o, "p", [*o.p, b]), "a z b"),
    "a reversed list": (lambda o, a, b: setattr(o, "p", [b, *o.p[::-1]]), "a z b"),
    "items swapped": (lambda o, a, b: o.p.__setitem__(slice(0, 2), [b, a]), "a z b"),
    "none in between": (
        lambda o, a, b: (setattr(o, "p", None), setattr(o, "p", [b, a])),
        "a z b",
    ),
    "removed and back": (lambda o, a, b: o.p.append(o.p.pop(0)), "z a"),
    "an attribute deleted": (
        lambda o, a, b: (delattr(o, "p"), setattr(o, "q", a)),
        "z a",
    ),
}


@pytest.mark.parametrize("change, order", PLACES.values(), ids=PLACES)
def test_replaced_item_keeps_its_position(change, order):
    owner, a, b = Owner(), dense("a"), dense("b")
    owner.p = [a]
    owner.z = dense("z")
    change(owner, a, b)
    assert owner.order == order


def test_order_is_updated_after_an_earlier_read():
    owner = Owner()
    owner.a, owner.b = [dense("a")], [dense("b")]
    for layer in (*owner.a, *owner.b):
        layer.build((None, 1))
    before = owner.weights
    owner.a.append(owner.a.pop())
    assert [id(v) for v in owner.weights] == [id(v) for v in before[2:] + before[:2]]


class PairOfLists(NamedTuple):
    """A layer with two lists."""

    first: Any
    second: Any


@pytest.mark.parametrize(
    "make", [lambda *both: both, PairOfLists, lambda *both: [*both]]
)
def test_nested_lists_are_ordered_by_insertion(make):
    owner = Owner()
    owner.parts = make([], [])
    assert type(owner.parts[0]) is OwnedList
    for i in range(2):
        owner.parts[0].append(dense(f"q{i}"))
        owner.parts[1].append(dense(f"k{i}"))
    assert owner.order == "q0 k0 q1 k1"
    assert type(owner.parts) in (tuple, PairOfLists, OwnedList)


def test_ordered_dicts_are_ordered_by_insertion():
    owner = Owner()
    owner.first, owner.second = OrderedDict(), OrderedDict()
    for name in "ab":
        owner.first[name] = dense(f"q{name}")
        owner.second.update({name: dense(f"k{name}")})
    assert owner.order == "qa ka qb kb"
    owner.first.move_to_end("a")
    assert list(owner.first) == ["b", "a"] and owner.first.popitem()[0] == "a"
    assert owner.order == "ka qb kb"
    restored = pickle.loads(pickle.dumps(owner.first))
    assert isinstance(restored, OrderedDict) and list(restored) == ["b"]
    assert toolkit.tree.structure_of(owner.second) == OrderedDict(
        a=toolkit.tree.LEAF, b=toolkit.tree.LEAF
    )
    assert type(toolkit.tree.map_structure(str, owner.second)) is OrderedDict
    assert owner.second.popitem(last=False)[0] == "a" and owner.order == "qb kb"


def test_reading_does_not_change_the_order():
    class LazyList(list):
        """A subclass of list."""

    orders = []
    for is_read in (False, True):
        owner = Owner()
        owner.parts = LazyList(), LazyList()
        for i in range(2):
            for name, items in zip("qk", owner.parts, strict=True):
                items.append(dense(f"{name}{i}"))
                if is_read:
                    assert owner.order
        orders.append(owner.order)
    assert orders[0] == orders[1]


def test_layer_with_a_list_is_freed():
    owner = Owner()
    owner.parts, owner.sizes = [dense("a")], {"b": [1]}
    reference = weakref.ref(owner)
    gc.disable()
    try:
        del owner
        assert reference() is None
    finally:
        gc.enable()


def test_copies_of_a_list_do_not_reference_the_layer():
    owner = Owner()
    owner.sizes, owner.lock = {"a": [1, 2]}, (i for i in "no pickle")
    for duplicate in (
        copy.deepcopy(owner.sizes),
        pickle.loads(pickle.dumps(owner.sizes)),
    ):
        assert duplicate == {"a": [1, 2]}
        duplicate["a"].append(dense("b"))
    assert owner.order == ""


def test_property_setter_determines_the_owner():
    class With(Owner):
        @property
        def parts(self):
            return self._parts

        @parts.setter
        def parts(self, value):
            self._parts = value

    owner = With()
    owner.parts = [dense("a")]
    owner.parts = [dense("b")]
    assert owner.order == "b"
    owner.parts.clear()
    assert owner.order == ""


def test_tree_of_attributes_equals_a_tree_of_containers():
    owner = Owner()
    owner.sizes, owner.named = [3, 4], {"a": [1]}
    added = toolkit.tree.map_structure(lambda a, b: a + b, owner.sizes, [3, 4])
    assert added == [6, 8] and type(added) is list
    toolkit.tree.assert_same_structure(owner.named, {"a": [1]})
    assert type(toolkit.tree.map_structure(str, owner.named)) is dict
    traced = toolkit.function(lambda x: x[0] + x[1])
    traced([1.0, 2.0])
    owner.x = [1.0, 2.0]
    traced(owner.x)
    assert traced.trace_count == 1


def test_layers_of_a_sequence_precede_attributes():
    model = toolkit.Sequential()
    model.extra = dense("extra")
    model.add(dense("a"))
    model.add(dense("b"))
    assert [layer.name for layer in model._sublayers()] == ["a", "b", "extra"]


def test_invalid_changes_raise_and_change_nothing():
    owner = Owner()
    owner.parts, owner.named = [dense("a")], {"b": dense("b")}
    for change, error in (
        (lambda: owner.parts.remove(dense("c")), ValueError),
        (lambda: owner.parts.pop(3), IndexError),
        (lambda: owner.parts.extend(3), TypeError),
        (lambda: owner.parts.__setitem__(4, dense("d")), IndexError),
        (lambda: owner.named.pop("c"), KeyError),
        (lambda: owner.named.__delitem__("c"), KeyError),
        (lambda: OwnedDict().popitem(), KeyError),
    ):
        with pytest.raises(error):
            change()
    assert owner.order == "a b"


def test_variables_in_lists_are_split_by_trainable():
    class Weights(layers.Layer):
        def build(self, shape):
            self.held = [None, self.add_weight(shape=(1,))]
            self.held[0] = self.add_weight(shape=(2,))
            self.more = []
            frozen = toolkit.Variable(np.zeros(5), trainable=False)
            self.more.append(frozen)
            self.more.append(toolkit.Variable(np.zeros(3)))

        def call(self, x):
            return x

    layer = Weights()
    layer.build((2,))
    assert [v.shape for v in layer.weights] == [(1,), (2,), (3,), (5,)]
    layer.trainable = False
    layer.trainable = True
    assert [v.trainable for v in layer.weights] == [True, True, True, False]
    layer.trainable = False
    assert [v.shape for v in layer.weights] == [(1,), (2,), (3,), (5,)]


@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))],
    ids=["copy", "p"],
)
def test_copies_have_the_same_order_and_notify_their_owner(duplicate):
    owner = Owner()
    owner.a, owner.b = [], []
    for name in ("a0", "b0", "a1", "b1"):
        getattr(owner, name[0]).append(dense(name))
    copied_owner = duplicate(owner)
    copied_owner.b.append(dense("b2"))
    copied_owner.a.append(dense("a2"))
    assert owner.order == "a0 b0 a1 b1"
    assert copied_owner.order == "a0 b0 a1 b1 b2 a2"
    assert copied_owner.a[0] is not owner.a[0]


def test_lists_of_numbers_are_not_tracked(monkeypatch):
    owner = Owner()
    owner.parts, owner.history = [dense(str(i)) for i in range(3)], []
    walks = []
    leaves = tracking._leaves
    monkeypatch.setattr(
        tracking,
        "_leaves",
        lambda value, visited: walks.append(1) or leaves(value, visited),
    )
    for i in range(100):
        owner.history.append(i)
        owner.history[-1] = float(i)
    assert owner.history == list(map(float, range(100))) and not walks


def test_container_may_be_shared_and_recursive():
    owner, shared = Owner(), [dense("a")]
    items = [shared, {"again": shared}]
    items.append(items)
    owner.parts = items
    assert owner.parts[2] is owner.parts and owner.parts[0] is owner.parts[1]["again"]
    owner.parts[0].append(dense("b"))
    owner.later = dense("later")
    assert owner.order == "a b later"


def test_container_subclasses_are_kept_and_searched():
    class CustomList(list):
        """A subclass of list."""

    owner, items = Owner(), CustomList()
    owner.mine = items
    items.append(dense("a"))
    assert owner.mine is items and owner.order == "a"


class Cell(layers.Layer):
    """A cell that is not registered."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = self.state_size = units

    def call(self, x, states):
        return states[0] + x, [states[0] + x]

    def get_config(self):
        return {**super().get_config(), "units": self.units}


@pytest.mark.parametrize(
    "make",
    [
        lambda: layers.RNN(Cell(3)),
        lambda: layers.StackedRNNCells([Cell(3)]),
        lambda: layers.TimeDistributed(Cell(3)),
    ],
)
def test_configs_with_nested_custom_classes(make):
    layer = make()
    with pytest.raises(ValueError, match="Cell"):
        type(layer).from_config(layer.get_config())
    restored = type(layer).from_config(
        layer.get_config(), custom_objects={"Cell": Cell}
    )
    assert restored.get_config() == layer.get_config()
