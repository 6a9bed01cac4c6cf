"""Nested structures of lists, tuples, named tuples and dicts.

Anything else is a leaf; None is a leaf too. Dicts are walked in sorted order of their
keys, so that two dicts with equal keys have the same structure. An OrderedDict is
walked in its order.

Example:
    >>> from toolkit import tree
    >>> tree.map_structure(lambda x: 2 * x, {"b": 1, "a": (2, 3)})
    {'b': 2, 'a': (4, 6)}
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from operator import itemgetter
from typing import Any

from toolkit.console.frames import warn
from toolkit.definitions.namespaces import module_dir
from toolkit.errors import ArgumentError, ArgumentTypeError

_SEQUENCES = (list, tuple, deque)
_MAPPINGS = (dict, OrderedDict, defaultdict)
_CONTAINERS = (*_SEQUENCES, *_MAPPINGS)
_PLAIN_SEQUENCES = frozenset((list, tuple))


class Leaf:
    """The structure of a single leaf. There is one instance, `LEAF`.

    Example:
        >>> from toolkit import tree
        >>> isinstance(tree.structure_of(1), tree.Leaf)
        True
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "*"


LEAF = Leaf()


def is_nested(structure: Any) -> bool:
    """Return whether `structure` is a container and not a leaf.

    Args:
        structure: any value.

    Returns:
        A boolean.

    Example:
        >>> from toolkit import tree
        >>> tree.is_nested([1]), tree.is_nested(1)
        (True, False)
    """
    return isinstance(structure, _CONTAINERS)


def _plain_kind(structure: Any) -> type:
    """Return the class of a container; for a tracked one, the plain class."""
    kind = type(structure)
    plain_class: type = getattr(kind, "_plain_class", kind)
    return plain_class


def _children(structure: Any) -> Iterable[Any]:
    if isinstance(structure, dict):
        return [structure[key] for key in keys_of(structure)]
    children: Iterable[Any] = structure
    return children


def keys_of(mapping: dict[Any, Any]) -> list[Any]:
    """Return the keys in the order of the walk.

    Args:
        mapping: a dict.

    Returns:
        A list.

    Example:
        >>> from toolkit import tree
        >>> tree.keys_of({"b": 1, "a": 2})
        ['a', 'b']
    """
    if isinstance(mapping, OrderedDict):
        return list(mapping)
    try:
        return sorted(mapping)
    except TypeError:
        return sorted(mapping, key=lambda key: (type(key).__name__, repr(key)))


def _rebuild(structure: Any, children: list[Any]) -> Any:
    """Return a container like `structure` with other children."""
    if isinstance(structure, dict):
        by_key = dict(zip(keys_of(structure), children, strict=True))
        ordered = {key: by_key[key] for key in structure}
        if isinstance(structure, defaultdict):
            return type(structure)(structure.default_factory, ordered)
        kind = _plain_kind(structure)
        return ordered if kind is dict else kind(ordered)
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*children)
    if _plain_kind(structure) in _SEQUENCES:
        return _plain_kind(structure)(children)
    return list(children) if isinstance(structure, list) else tuple(children)


def _collect(structure: Any, leaves: list[Any]) -> None:
    if type(structure) in _PLAIN_SEQUENCES:  # a batch, in each step
        for child in structure:
            _collect(child, leaves)
    elif isinstance(structure, _CONTAINERS):
        for child in _children(structure):
            _collect(child, leaves)
    else:
        leaves.append(structure)


def flatten(structure: Any) -> list[Any]:
    """Return the leaves of `structure`, in order.

    Args:
        structure: nested lists, tuples and dicts.

    Returns:
        A list.

    Example:
        >>> from toolkit import tree
        >>> tree.flatten({"b": [1, 2], "a": 3})
        [3, 1, 2]
    """
    leaves: list[Any] = []
    _collect(structure, leaves)
    return leaves


def structure_of(structure: Any) -> Any:
    """Return `structure` with every leaf replaced by `LEAF`.

    Args:
        structure: nested lists, tuples and dicts.

    Returns:
        A structure of the same containers.

    Example:
        >>> from toolkit import tree
        >>> tree.structure_of({"b": [1, 2], "a": 3})
        {'b': [*, *], 'a': *}
    """
    return map_structure(lambda _: LEAF, structure)


def signature(structure: Any) -> Any:
    """Return a hashable description of the containers of `structure`.

    Args:
        structure: nested lists, tuples and dicts.

    Returns:
        Nested tuples; equal for structures with equal containers and keys.

    Example:
        >>> from toolkit import tree
        >>> tree.signature([1, 2]) == tree.signature([3, 4])
        True
    """
    if not is_nested(structure):
        return LEAF
    children = tuple(signature(child) for child in _children(structure))
    if isinstance(structure, dict):
        return _plain_kind(structure), tuple(keys_of(structure)), children
    return _plain_kind(structure), children


def pack_sequence_as(structure: Any, flat_sequence: Iterable[Any]) -> Any:
    """Build a structure like `structure` from the leaves in `flat_sequence`.

    Args:
        structure: nested lists, tuples and dicts.
        flat_sequence: as many values as the structure has leaves.

    Returns:
        A structure of the same containers, with the values as leaves.

    Example:
        >>> from toolkit import tree
        >>> tree.pack_sequence_as({"b": 0, "a": (0, 0)}, [1, 2, 3])
        {'b': 3, 'a': (1, 2)}
    """
    leaves = list(flat_sequence)
    expected = len(flatten(structure))
    if len(leaves) != expected:
        raise ArgumentError(
            f"pack_sequence_as: the number of leaves differs: expected {expected}; "
            f"received {len(leaves)}"
        )
    return _pack(structure, iter(leaves))


def copy_containers(structure: Any) -> Any:
    """Return the same leaves in new containers.

    Args:
        structure: nested lists, tuples and dicts.

    Returns:
        A structure of new containers.

    Example:
        >>> given = {"a": [1, 2]}
        >>> copy_containers(given) == given, copy_containers(given)["a"] is given["a"]
        (True, False)
    """
    return map_structure(lambda leaf: leaf, structure)


def make_packer(structure: Any) -> Callable[[list[Any]], Any]:
    """Return a fast `pack_sequence_as` for a structure that is filled many times.

    Args:
        structure: nested lists, tuples and dicts.

    Returns:
        A function from a list of leaves to a structure.

    Example:
        >>> from toolkit import tree
        >>> tree.make_packer({"b": 0, "a": 0})([1, 2])
        {'b': 2, 'a': 1}
    """
    if not is_nested(structure):
        return itemgetter(0)
    if _plain_kind(structure) in (list, tuple) and not any(map(is_nested, structure)):
        return _plain_kind(structure)
    if _plain_kind(structure) is dict and not any(map(is_nested, structure.values())):
        indices = {key: i for i, key in enumerate(keys_of(structure))}
        pairs = [(key, indices[key]) for key in structure]
        return lambda leaves: {key: leaves[i] for key, i in pairs}
    return partial(pack_sequence_as, structure)


def _pack(structure: Any, leaves: Iterator[Any]) -> Any:
    if isinstance(structure, _CONTAINERS):
        children = [_pack(child, leaves) for child in _children(structure)]
        return _rebuild(structure, children)
    return next(leaves)


def map_structure(
    func: Callable[..., Any], *structures: Any, none_is_leaf: bool = True
) -> Any:
    """Apply `func` to the corresponding leaves of equal structures.

    Args:
        func: takes one leaf of each structure.
        structures: dicts, OrderedDicts and defaultdicts with equal keys match.
        none_is_leaf: whether `func` is also called with None; if not, and all leaves
            are None, the result is None.

    Returns:
        A structure of the same containers, with the results as leaves.

    Example:
        >>> from toolkit import tree
        >>> tree.map_structure(lambda x, y: x + y, {"a": 1}, {"a": 2})
        {'a': 3}
    """
    _check_mapping("map_structure", func, structures)
    if not none_is_leaf:
        func = partial(_unless_none, func)
    if len(structures) == 1:
        return _map(func, structures[0])
    for other in structures[1:]:
        assert_same_structure(structures[0], other)
    return _map_up_to(structures[0], func, structures)


def _check_mapping(caller: str, func: Any, structures: Any) -> None:
    if not structures:
        raise ArgumentTypeError(f"{caller}: expected at least one structure")
    if not callable(func):
        raise TypeError(f"{caller}: expected a callable; received {func!r}")


def _unless_none(func: Callable[..., Any], *leaves: Any) -> Any:
    if leaves[0] is not None:
        return func(*leaves)
    if any(leaf is not None for leaf in leaves):
        raise ArgumentError(f"map_structure: expected None everywhere; got {leaves}")
    return None


def _map(func: Callable[..., Any], structure: Any) -> Any:
    if type(structure) in _PLAIN_SEQUENCES:  # a batch, in each step
        return type(structure)([_map(func, x) for x in structure])
    if isinstance(structure, _CONTAINERS):
        return _rebuild(structure, [_map(func, x) for x in _children(structure)])
    return func(structure)


def map_structure_up_to(
    shallow_structure: Any, func: Callable[..., Any], *structures: Any
) -> Any:
    """Apply `map_structure`, but walk only to the depth of `shallow_structure`.

    Args:
        shallow_structure: the containers to walk.
        func: a function of one value of each structure.
        structures: structures that contain the containers of the shallow structure.

    Returns:
        A structure of the containers of the shallow structure.

    Example:
        >>> from toolkit import tree
        >>> tree.map_structure_up_to([0, 0], len, [[1, 2], [3]])
        [2, 1]
    """
    _check_mapping("map_structure_up_to", func, structures)
    return _map_up_to(shallow_structure, func, structures)


def _map_up_to(shallow: Any, func: Callable[..., Any], structures: Any) -> Any:
    if not is_nested(shallow):
        return func(*structures)
    for structure in structures:
        _check_container(shallow, structure)
    keys = keys_of(shallow) if isinstance(shallow, dict) else range(len(shallow))
    pairs = [(shallow[key], [s[key] for s in structures]) for key in keys]
    return _rebuild(
        shallow,
        [
            _map_up_to(shallow_child, func, children)
            for shallow_child, children in pairs
        ],
    )


def _container(structure: Any) -> Any:
    """Return the common key of the top containers of equal structures."""
    if isinstance(structure, dict):
        return dict, frozenset(structure)
    return (_plain_kind(structure), len(structure)) if is_nested(structure) else LEAF


def _check_container(a: Any, b: Any) -> None:
    if _container(a) != _container(b):
        raise ArgumentError(
            "the structures don't have the same nested structure: expected "
            f"{_describe(a)}; received {_describe(b)}"
        )


def _describe(structure: Any) -> str:
    name = _plain_kind(structure).__name__
    if not is_nested(structure):
        return f"a leaf ({name})"
    if isinstance(structure, dict):
        return f"{name} with the keys {keys_of(structure)}"
    name = f"namedtuple {name}" if hasattr(structure, "_fields") else name
    return f"{name} with {len(structure)} as its number of entries"


def flatten_up_to(shallow: Any, structure: Any) -> list[Any]:
    """Return the parts of `structure` at the leaves of `shallow`.

    Args:
        shallow: the containers to walk.
        structure: a structure that contains them.

    Returns:
        A list.

    Example:
        >>> from toolkit import tree
        >>> tree.flatten_up_to([0, 0], [[1, 2], 3])
        [[1, 2], 3]
    """
    if not is_nested(shallow):
        return [structure]
    if not is_nested(structure) or len(shallow) != len(structure):
        raise ArgumentError(
            f"flatten_up_to: expected a structure like {shallow!r}; "
            f"received {structure!r}"
        )
    if isinstance(shallow, dict) and isinstance(structure, dict):
        if set(shallow) != set(structure):
            raise ArgumentError(
                f"flatten_up_to: expected the keys {keys_of(shallow)}; received "
                f"{keys_of(structure)}"
            )
        structure = {key: structure[key] for key in keys_of(shallow)}
        pairs = zip(_children(shallow), structure.values(), strict=True)
    else:
        pairs = zip(_children(shallow), _children(structure), strict=True)
    return [
        leaf
        for shallow_child, child in pairs
        for leaf in flatten_up_to(shallow_child, child)
    ]


def assert_same_structure(a: Any, b: Any, check_types: bool | None = None) -> None:
    """Raise ArgumentError unless `a` and `b` have the same containers and keys.

    Args:
        a, b: dicts, OrderedDicts and defaultdicts with equal keys match.
        check_types: no effect, as in Keras; `assert_same_paths` does not compare types.

    Example:
        >>> from toolkit import tree
        >>> tree.assert_same_structure({"a": [1]}, {"a": [2]})
    """
    if check_types is not None:
        warn(
            "assert_same_structure: check_types has no effect; use assert_same_paths "
            "if types do not matter",
            DeprecationWarning,
        )
    _check_container(a, b)
    if is_nested(a):
        for key in a if isinstance(a, dict) else range(len(a)):
            assert_same_structure(a[key], b[key])


class MAP_TO_NONE:
    """Return value of the function of `traverse` that replaces a part by None.

    Example:
        >>> from toolkit import tree
        >>> tree.traverse(lambda x: tree.MAP_TO_NONE if x == 1 else None, [1, 2])
        [None, 2]
    """


def traverse(func: Callable[[Any], Any], structure: Any, top_down: bool = True) -> Any:
    """Apply `func` to every container and leaf; replace them by its results.

    Args:
        func: returns the replacement of a part; None keeps it, MAP_TO_NONE replaces it
            by None.
        structure: not modified.
        top_down: whether a container is visited before its children; if it is replaced,
            its children are not visited. Otherwise it is visited after them.

    Returns:
        The new structure.

    Example:
        >>> from toolkit import tree
        >>> tree.traverse(lambda x: 2 * x if isinstance(x, int) else None, [1, [2]])
        [2, [4]]
    """
    if not callable(func):
        raise TypeError(f"traverse: expected a callable; received {func!r}")
    replacement = func(structure) if top_down else None
    if replacement is None and is_nested(structure):
        children = [traverse(func, child, top_down) for child in _children(structure)]
        structure = _rebuild(structure, children)
    if not top_down:
        replacement = func(structure)
    if replacement is None:
        return structure
    return None if replacement is MAP_TO_NONE else replacement


def flatten_with_path(structure: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """Return the leaves of `structure` in order, each with its path.

    Args:
        structure: nested lists, tuples and dicts.

    Returns:
        A list of (path, leaf); a path is a tuple of keys and indices.

    Example:
        >>> from toolkit import tree
        >>> tree.flatten_with_path({"b": [1, 2], "a": 3})
        [(('a',), 3), (('b', 0), 1), (('b', 1), 2)]
    """
    if not is_nested(structure):
        return [((), structure)]
    keys = keys_of(structure) if isinstance(structure, dict) else count()
    return [
        ((key, *path), leaf)
        for key, child in zip(keys, _children(structure), strict=False)
        for path, leaf in flatten_with_path(child)
    ]


def assert_same_paths(a: Any, b: Any) -> None:
    """Raise ArgumentError unless `a` and `b` have leaves at the same paths.

    Args:
        a, b: nested lists, tuples and dicts.

    Example:
        >>> from toolkit import tree
        >>> tree.assert_same_paths([1, 2], (3, 4))
    """
    first, second = ({path for path, _ in flatten_with_path(x)} for x in (a, b))
    if first != second:
        raise ArgumentError(
            "assert_same_paths: `a` and `b` don't have the same paths; only in a: "
            f"{sorted(first - second, key=repr)}, only in b: "
            f"{sorted(second - first, key=repr)}"
        )


def lists_to_tuples(structure: Any) -> Any:
    """Return `structure` with every list converted to a tuple.

    Args:
        structure: nested lists, tuples and dicts.

    Returns:
        The new structure.

    Example:
        >>> from toolkit import tree
        >>> tree.lists_to_tuples([1, [2, 3]])
        (1, (2, 3))
    """
    return traverse(
        lambda x: tuple(x) if isinstance(x, list) else None, structure, top_down=False
    )


def map_shape_structure(func: Callable[..., Any], structure: Any) -> Any:
    """Apply `map_structure`, but a list or tuple of ints and Nones is one leaf.

    Args:
        func: a function of one shape.
        structure: a shape, or nested lists and dicts of shapes.

    Returns:
        A structure of the same containers, with the results as leaves.

    Example:
        >>> from toolkit import tree
        >>> tree.map_shape_structure(len, {"a": (None, 2), "b": (3,)})
        {'a': 2, 'b': 1}
    """
    if isinstance(structure, (list, tuple)) and all(
        x is None or isinstance(x, int) for x in structure
    ):
        return func(structure)
    if not is_nested(structure):
        return func(structure)
    children = [map_shape_structure(func, x) for x in _children(structure)]
    return _rebuild(structure, children)


__dir__ = module_dir(__name__)
