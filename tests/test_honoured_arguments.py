"""Tests that every accepted argument is used or documented as having no effect."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import toolkit
from toolkit.errors import ToolkitError

PACKAGE = Path(toolkit.__file__).parent
# Phrases of one line that document an argument without effect.
NO_EFFECT = re.compile(
    r"no\s+effect|changes\s+nothing|in\s+any\s+case|allows\s+no\s+more"
)

# Methods whose parameters belong to the caller's protocol, not to one implementation.
INTERFACES = re.compile(
    r"(on_\w+|build|build_from_config|begin|begin_step|call|compute_\w+|merge|records"
    r"|origin|update|update_state|first|get_random_transformation|transform_\w+"
    r"|get_tensor_layout|dropout_masks|from_config|quantize|is_initialized|run"
    r"|reset_state|inspect)"
)
# Parts whose functions share one signature in a table and are not public.
INTERNAL = ("backends", "compiler", "plans")
# Functions that receive more arguments than they need.
FORWARDED = {"FeatureSpace.__call__"}  # called like a layer, with `training`


@cache
def functions():
    """Return (location, syntax, class docstring) of public functions and methods."""
    return [
        (f"{path.relative_to(PACKAGE)}:{node.lineno} {name}", node, class_name)
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] not in INTERNAL
        for name, node, class_name in public(ast.parse(path.read_text("utf-8")))
        if not INTERFACES.fullmatch(node.name) and name not in FORWARDED
    ]


def public(tree, prefix="", class_name=""):
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            doc = ast.get_docstring(node) or ""
            yield from public(node, f"{prefix}{node.name}.", doc)
        elif isinstance(node, ast.FunctionDef):
            if not node.name.startswith("_") or node.name in ("__init__", "__call__"):
                yield prefix + node.name, node, class_name


def unused(function):
    """Return the parameters that a function's body does not name."""
    arguments = function.args
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    parameters += [one for one in (arguments.vararg, arguments.kwarg) if one]
    body = ast.Module(function.body, [])
    named = {node.id for node in ast.walk(body) if isinstance(node, ast.Name)}
    if "locals" in named or is_declaration(function):
        return []
    names = [parameter.arg for parameter in parameters]
    return [n for n in names if n not in named and not n.startswith(("self", "cls"))]


def is_declaration(function):
    """Return whether the body is only a docstring or only raises an error."""
    plain = [s for s in function.body if not isinstance(s, ast.Expr)]
    return all(isinstance(statement, (ast.Pass, ast.Raise)) for statement in plain)


def is_documented(name, text):
    """Return whether a sentence about `name` says that it has no effect."""
    sentences = re.split(r"\.\s|\n\n|\n\s+(?=\w[\w, ]*:)", text + " ")
    return any(re.search(rf"\b{name}\b", s) and NO_EFFECT.search(s) for s in sentences)


def test_unused_arguments_are_documented():
    wrong = []
    for where, function, class_name in functions():
        text = f"{ast.get_docstring(function) or ''}\n\n{class_name}"
        names = [name for name in unused(function) if not is_documented(name, text)]
        if where.startswith("compat/tensorflow/"):  # documented once for all
            names = [name for name in names if name != "name"]
        wrong += [f"{where}: {name}" for name in names]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "is_expected"),
    [
        ("Args:\n    x: any.\n    sorted: has no effect: they are.", True),
        ("Args:\n    x: has no effect.\n    sorted: whether to sort.", False),
        ("It has no effect. `sorted` sorts.", False),
        ("`sorted` and\n`x` have no effect.", True),
    ],
)
def test_is_documented(text, is_expected):
    assert is_documented("sorted", text) is is_expected


def test_unused():
    source = "def f(self, a, *, b=1, **c):\n    'b'\n    return a"
    assert unused(ast.parse(source).body[0]) == ["b", "c"]


def test_model_refuses_symbols_without_history():
    symbol = toolkit.KerasTensor((None, 3), record_history=False)
    output = toolkit.layers.Dense(2)(symbol)
    with pytest.raises(ToolkitError):
        toolkit.Model(symbol, output)
