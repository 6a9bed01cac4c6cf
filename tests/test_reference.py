"""The API reference of the site has an entry for each public name and method."""

from __future__ import annotations

import inspect
import re
import runpy
import sys
from importlib import import_module
from pathlib import Path
from types import MemberDescriptorType

import pytest

import toolkit
import toolkit.compat.tensorflow as tf
from tests.test_exports import NAMESPACES, public

CONF = Path(toolkit.__file__).resolve().parents[1] / "docs" / "conf.py"
DIRECTIVE = re.compile(r"\.\. (?:autoclass|autofunction|py:data):: (\S+)")
ROW = re.compile(r":py:obj:`(\w+) <(\S+)>`")

pytestmark = pytest.mark.skipif(not CONF.exists(), reason="docs are in checkouts only")


@pytest.fixture(scope="module")
def conf():
    """Return the names of the configuration of the site."""
    path = list(sys.path)
    yield runpy.run_path(str(CONF))
    sys.path[:] = path


@pytest.fixture(scope="module")
def reference(conf):
    """Return the module that makes the pages, as the configuration imports it."""
    return sys.modules[conf["reference_pages"].__module__]


@pytest.fixture(scope="module")
def pages(reference):
    return reference.reference_pages()


@pytest.fixture(scope="module")
def entries(pages):
    """The objects with an entry, and the members that each entry lists."""
    entries = {}
    for text in pages.values():
        for block in re.split(r"\n(?=\.\. )", text):
            if match := DIRECTIVE.match(block):
                listed = re.search(r":members: (.+)", block)
                module = re.search(r":module: (.+)", block)
                name = f"{module[1]}.{match[1]}" if module else match[1]
                assert name not in entries, "two entries"
                entries[name] = listed[1].split(", ") if listed else []
    return entries


def value_of(name):
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def submodules(namespace):
    """Return the public modules below a namespace, which a user can write."""
    module = import_module(namespace)
    names = [n for n in getattr(module, "__all__", ()) if n.isidentifier()]
    values = [getattr(module, name) for name in names]
    nested = [value.__name__ for value in values if inspect.ismodule(value)]
    return nested + [n for child in nested for n in submodules(child)]


def exported():
    """Yield the namespace, name and value of each public class and function."""
    namespaces = dict.fromkeys(
        ["toolkit", *submodules("toolkit"), *(f"toolkit.{n}" for n in NAMESPACES)]
    )
    for namespace in namespaces:
        name = namespace.removeprefix("toolkit").removeprefix(".")
        for n in public(name) if name else toolkit.__all__:
            value = getattr(import_module(namespace), n)
            is_object = inspect.isclass(value) or inspect.isroutine(value)
            is_message = namespace == "toolkit.errors" and not inspect.isclass(value)
            home = getattr(value, "__module__", None) or ""
            if is_object and not is_message and home.startswith("toolkit"):
                yield namespace, n, value


def test_each_public_name_has_an_entry(entries):
    documented = {id(value_of(name)) for name in entries}
    missing = [f"{s}.{n}" for s, n, value in exported() if id(value) not in documented]
    assert missing == []
    assert len(entries) > 900


def test_each_public_name_is_in_a_table_of_its_namespace(pages, entries):
    """The table has the name, and refers to the entry of the same object."""
    rows = {}
    for path, text in pages.items():
        for name, target in ROW.findall(text):
            rows.setdefault(name, []).append((path.partition("/")[0], target))
    missing = []
    for namespace, name, value in exported():
        page = namespace if namespace in pages else namespace.rpartition(".")[0]
        targets = [target for path, target in rows.get(name, []) if path == page]
        if not any(t in entries and value_of(t) is value for t in targets):
            missing.append(f"{namespace}.{name}")
    assert missing == []


def is_public_method(cls, name):
    owner = next((base for base in cls.__mro__ if name in vars(base)), object)
    if owner is object:  # a name of the metaclass
        return False
    value = vars(owner)[name]
    is_own = owner.__module__.startswith("toolkit.")
    is_own &= (getattr(value, "__module__", None) or "toolkit").startswith("toolkit")
    is_descriptor = callable(value) or hasattr(value, "__get__")
    is_slot = inspect.isclass(value) or isinstance(value, MemberDescriptorType)
    return is_own and is_descriptor and not is_slot


def test_each_public_method_has_an_entry(entries):
    """An inherited method has its entry at the class or at one of its bases."""
    members = {value_of(name): listed for name, listed in entries.items()}
    missing = [
        f"{namespace}.{name}.{method}"
        for namespace, name, cls in exported()
        if inspect.isclass(cls)
        for method in dir(cls)
        if not method.startswith("_") and hasattr(cls, method)
        if is_public_method(cls, method)
        if not any(method in members.get(base, ()) for base in cls.__mro__)
    ]
    assert missing == []


def test_entries_list_no_names_that_a_class_lacks(entries):
    """A class can have hints for names of other libraries, such as `Layer.cuda`."""
    missing = [
        f"{name}.{member}"
        for name, members in entries.items()
        for member in members
        if not hasattr(value_of(name), member)
    ]
    assert missing == []


@pytest.mark.parametrize(
    "name",
    [
        *("Model.fit", "Model.compile", "Model.evaluate", "Model.predict"),
        *("Model.train_step", "Model.train_on_batch", "Model.inspect"),
        *("Model.quantize", "Model.summary", "Model.save", "Model.export"),
    ],
)
def test_methods_of_models_are_on_the_page_of_the_model(pages, name):
    page = pages["toolkit.models/Model"]
    assert f"<toolkit.models.{name}>" in page


def test_each_entry_has_a_summary(entries):
    without = [name for name in entries if not (value_of(name).__doc__ or "").strip()]
    without += [
        f"{name}.{method}"
        for name, listed in entries.items()
        for method in listed
        if not inspect.getattr_static(value_of(name), method).__doc__
    ]
    assert without == []


def test_no_page_is_empty(pages):
    without_rows = {p for p, text in pages.items() if not ROW.search(text)}
    assert without_rows == {"index", "toolkit.compat"}  # the latter has no entries
    for page in pages:
        namespace = page.partition("/")[0]
        assert f"<{namespace}>" in pages["index"] or namespace == "index"


@pytest.mark.parametrize("name", ["Inspection", "Kernel", "inspect_program"])
def test_results_of_inspect_have_entries(entries, name):
    assert f"toolkit.inspection.{name}" in entries
    if name == "Inspection":
        assert {"plot", "trace", "measure", "passes"} <= {
            *entries[f"toolkit.inspection.{name}"]
        }


def test_names_of_tensorflow_are_listed_with_summaries(pages):
    """Each name of `tf` and of its modules is in a table; refusals are not."""
    rows = dict(
        re.findall(
            r"(?m)^   \* - ``(tf\.[\w.]+)``\n     - (.+)$", pages["toolkit.compat"]
        )
    )
    for name in ("matmul", "Variable", "image.resize", "strings.join", "data.Dataset"):
        assert f"tf.{name}" in rows
    for name in tf.__all__:
        value = getattr(tf, name)
        is_listed = inspect.isclass(value) or inspect.isfunction(value)
        assert (f"tf.{name}" in rows) == is_listed, name
    assert "tf.math.ArgumentError" not in rows
    assert len(rows) > 700


def test_internals_have_no_entry(entries):
    """An entry has a public name, or is the base of at least two public classes."""
    public_classes = {value for _, _, value in exported() if inspect.isclass(value)}
    for name, listed in entries.items():
        assert not re.search(r"\._", name), name
        assert [m for m in listed if m.startswith("_") and m != "__call__"] == []
        value = value_of(name)
        if inspect.isclass(value) and value not in public_classes:
            users = [cls for cls in public_classes if issubclass(cls, value)]
            assert len(users) > 1, name


def test_groups_contain_every_name(reference):
    """A name that no group selects is in the group "Other"."""
    for namespace in reference.GROUPS:
        assert "Other" not in reference.group_names(namespace), namespace


@pytest.mark.parametrize(
    "text, markup",
    [
        ("A *b | c*, `d * e`.", r"A \*b \| c\*, `d * e`."),
        ("[A, 2020](https://a.org/b) and c.", "`A, 2020 <https://a.org/b>`__ and c."),
        (">>> 2 * 3\n6\n\n2 * 3", ">>> 2 * 3\n6\n\n2 \\* 3"),
        ("a * b::\n\n    c = 2 * c\n\n    d |= c", None),
        ("a::\n\n    b * c\n\nd * e", "a::\n\n    b * c\n\nd \\* e"),
    ],
)
def test_docstrings_become_markup(text, markup, reference):
    expected = text.replace("a * b", r"a \* b") if markup is None else markup
    assert "\n".join(reference.to_markup(text.split("\n"))) == expected


def test_a_colon_does_not_end_the_type_of_a_property(conf):
    text = ["Return a device, such as `cpu:0`: a name.", "", "Also: this."]
    lines = list(text)
    conf["convert_docstring"](None, "property", "device", None, None, lines)
    assert ":" not in lines[0] and lines[1:] == text[1:]
    conf["restore_colons"](None, "property", "device", None, None, lines)
    assert lines == text


def test_formulas_of_several_lines_keep_their_lines():
    """A paragraph loses its line breaks. Formulas are in blocks after `::`."""
    formula = re.compile(r"^\w+'? = .*[^.]$", re.MULTILINE)
    joined = [
        f"{namespace}.{name}"
        for namespace, name, value in exported()
        for paragraph in inspect.cleandoc(value.__doc__ or "").split("\n\n")
        if len(formula.findall(paragraph)) > 1
    ]
    assert joined == []
