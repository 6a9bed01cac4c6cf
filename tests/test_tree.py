"""Tests of nested structures."""

from collections import OrderedDict, defaultdict, deque, namedtuple
from functools import partial
from operator import add

import pytest

from toolkit import tree
from toolkit.errors import ArgumentError

Point = namedtuple("Point", "x y")

NESTS = [
    (1, [1]),
    (None, [None]),
    ("text", ["text"]),
    ([], []),
    ((1, [2, (3,)]), [1, 2, 3]),
    ({"b": 1, "a": [2, 3]}, [2, 3, 1]),
    ({"b": 1, "a": 2}, [2, 1]),
    (OrderedDict(z=1, a=2), [1, 2]),
    (defaultdict(list, k=1), [1]),
    (deque([1, 2]), [1, 2]),
    (Point(1, Point(2, None)), [1, 2, None]),
    ({1: "x", "1": "y"}, ["x", "y"]),
]


@pytest.mark.parametrize("structure, leaves", NESTS)
def test_flatten_and_back(structure, leaves):
    assert tree.flatten(structure) == leaves
    packed = tree.pack_sequence_as(structure, leaves)
    assert repr(tree.make_packer(tree.structure_of(structure))(leaves)) == repr(packed)
    assert packed == structure
    assert type(packed) is type(structure)


@pytest.mark.parametrize("structure, leaves", NESTS)
def test_map_keeps_the_containers(structure, leaves):
    mapped = tree.map_structure(repr, structure)
    assert tree.flatten(mapped) == [repr(leaf) for leaf in leaves]
    assert tree.signature(mapped) == tree.signature(structure)


def test_a_mapping_keeps_the_order_of_its_keys():
    assert list(tree.map_structure(str, {"b": 1, "a": 2})) == ["b", "a"]


def test_a_defaultdict_keeps_its_factory():
    mapped = tree.map_structure(str, defaultdict(list, a=1))
    assert mapped["missing"] == []


def test_map_over_several():
    total = tree.map_structure(lambda x, y: x + y, {"a": (1, 2)}, {"a": (10, 20)})
    assert total == {"a": (11, 22)}


@pytest.mark.parametrize(
    "a, b", [([1], (1,)), ([1], [1, 2]), ({"a": 1}, {"b": 1}), (1, [1])]
)
def test_different_structures_are_refused(a, b):
    assert tree.signature(a) != tree.signature(b)
    with pytest.raises(ArgumentError, match="expected .* received"):
        tree.map_structure(lambda x, y: None, a, b)


@pytest.mark.parametrize("leaves", [[1], [1, 2, 3]])
def test_a_wrong_number_of_leaves_is_refused(leaves):
    with pytest.raises(ArgumentError, match="number of leaves differs: expected 2"):
        tree.pack_sequence_as([0, 0], leaves)


def test_up_to():
    shallow = {"a": 0, "b": [0, 0]}
    deep = {"a": (1, 2), "b": [{"c": 3}, 4]}
    assert tree.flatten_up_to(shallow, deep) == [(1, 2), {"c": 3}, 4]
    lengths = tree.map_structure_up_to(shallow, lambda subtree: str(subtree), deep)
    assert lengths == {"a": "(1, 2)", "b": ["{'c': 3}", "4"]}
    with pytest.raises(ArgumentError):
        tree.flatten_up_to([0, 0], [1])


def test_signatures_are_hashable():
    assert len({tree.signature(structure) for structure, _ in NESTS}) >= 8


def test_is_nested():
    assert tree.is_nested(()) and tree.is_nested({})
    assert not tree.is_nested("text") and not tree.is_nested(None)


def test_structure_of():
    assert repr(tree.structure_of({"a": (1, 2)})) == "{'a': (*, *)}"


def test_traverse():
    visited = []
    structure = [(1, 2), {"a": 3}]
    assert tree.traverse(visited.append, structure) == structure
    assert visited == [structure, (1, 2), 1, 2, {"a": 3}, 3]
    cut = tree.traverse(
        lambda x: tree.MAP_TO_NONE if isinstance(x, tuple) else None, structure
    )
    assert cut == [None, {"a": 3}]
    assert tree.traverse(
        lambda x: sum(x) if isinstance(x, tuple) else None, structure, top_down=False
    ) == [3, {"a": 3}]
    with pytest.raises(TypeError):
        tree.traverse(1, structure)


def test_paths_and_shapes():
    assert tree.flatten_with_path([(1,), {"b": 2}]) == [((0, 0), 1), ((1, "b"), 2)]
    tree.assert_same_paths([0, (1,)], (2, [3]))
    with pytest.raises(ArgumentError, match=r"only in a: \[\(1,\)\]"):
        tree.assert_same_paths([0, 1], [0])
    assert tree.lists_to_tuples([1, {"a": [2]}]) == (1, {"a": (2,)})
    shapes = {"a": (None, 3), "b": [(2,), (1, 1)]}
    assert tree.map_shape_structure(len, shapes) == {"a": 2, "b": [1, 2]}


def test_dict_types_are_equivalent():
    ordered = OrderedDict(b=10, a=20)
    assert tree.map_structure(add, {"a": 1, "b": 2}, ordered) == {"a": 21, "b": 12}
    mapped = tree.map_structure(add, ordered, defaultdict(int, a=1, b=2))
    assert type(mapped) is OrderedDict and list(mapped.items()) == [
        ("b", 12),
        ("a", 21),
    ]
    assert tree.signature(ordered) != tree.signature(OrderedDict(a=20, b=10))
    with pytest.raises(ArgumentError, match="namedtuple Point with 2 as its number"):
        tree.assert_same_structure({"a": (1, 2)}, OrderedDict(a=Point(1, 2)))


def test_none_can_be_skipped():
    nest = [None, (1, None)]
    assert tree.map_structure(str, nest, none_is_leaf=False) == [None, ("1", None)]
    with pytest.raises(ArgumentError, match="None everywhere"):
        tree.map_structure(max, [None], [1], none_is_leaf=False)


def test_map_to_the_depth_of_another_structure():
    assert tree.map_structure_up_to([0, [0]], len, ["ab", [(1, 2, 3)]]) == [2, [3]]
    with pytest.raises(ArgumentError, match="expected list .* received tuple"):
        tree.map_structure_up_to([0], len, ("ab",))
    for function in (tree.map_structure, partial(tree.map_structure_up_to, [0])):
        with pytest.raises(ValueError, match="at least one structure"):
            function(len)
    with pytest.raises(TypeError, match="expected a callable"):
        tree.map_structure("len", [1])
    with pytest.warns(DeprecationWarning, match="assert_same_paths"):
        tree.assert_same_structure([1], [2], check_types=False)
