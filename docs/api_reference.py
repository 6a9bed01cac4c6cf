"""Pages of the API reference, which `conf.py` writes before each build.

A namespace has one page. It opens with tables of the names and their summaries. A large
namespace has one more page for each group of names, and so has a large class.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any

from api_groups import CONSTANTS, GROUPS, INDEX, TITLES
from api_names import (
    compat_names,
    compat_namespaces,
    docstring_of,
    documented_bases,
    documented_classes,
    entry_of,
    exports,
    members,
    public_namespaces,
    shared_bases,
    value_of,
)

# A namespace with more entries has one page for each group.
MAX_ENTRIES = 45
# A class with more members has its own page.
MAX_MEMBERS = 12


def reference_pages() -> dict[str, str]:
    """Return the text of each page by its path without suffix."""
    pages: dict[str, str] = {"index": _index_page()}
    for namespace in public_namespaces():
        if _has_page(namespace):
            pages |= _pages_of(namespace)
    pages["toolkit.compat"] = _compat_page()
    return pages


def _has_page(namespace: str) -> bool:
    """Return whether a namespace has a page, or a section of its parent's page."""
    return namespace in TITLES or namespace.count(".") < 2


def _sections_of(namespace: str) -> list[str]:
    """Return the namespaces that are sections of the page of a namespace."""
    return [
        child
        for child in public_namespaces()
        if child.rpartition(".")[0] == namespace and not _has_page(child)
    ]


def _pages_of(namespace: str) -> dict[str, str]:
    """Return the page of a namespace, of its groups and of its large classes."""
    groups = group_names(namespace)
    own = [n for names in groups.values() for n in names if _is_entry(namespace, n)]
    is_split = len(own) > MAX_ENTRIES and len(groups) > 1
    pages: dict[str, str] = {}
    lines = [*_title(_title_of(namespace)), f".. automodule:: {namespace}", ""]
    details: list[str] = []
    labels: dict[str, str] = {}  # of pages in the navigation
    for title, names in groups.items():
        shown = [n for n in names if _is_entry(namespace, n)]
        large = [n for n in shown if _is_large(f"{namespace}.{n}")]
        small = [f"{namespace}.{n}" for n in shown if n not in large]
        for name in large:
            pages[f"{namespace}/{name}"] = _class_page(f"{namespace}.{name}")
            labels[f"{namespace}/{name}"] = name
        small += _bases_of(f"{namespace}.{name}" for name in shown)
        text = "\n".join(line for name in small for line in _entry(name))
        table = [*_rows(namespace, names), ""]
        if not is_split or not small:
            lines += [*(_heading(title) if title else []), *table]
            details.append(text)
            continue
        path = f"{namespace}/{_slug(title)}"
        lines += [*_heading(f":doc:`{title} </reference/{path}>`"), *table]
        page_title = _title(f"{_title_of(namespace)} – {title}")
        pages[path] = "\n".join([*page_title, *table, text])
        labels[path] = title
    for child in _sections_of(namespace):
        lines += [*_heading(f"``{child}``"), f".. automodule:: {child}", ""]
        lines += [*_child_table(child), ""]
        shown = [n for n in objects(child) if _is_entry(child, n)]
        details += ["\n".join(_entry(f"{child}.{name}")) for name in shown]
    if any(details):
        lines += [*_heading("Details"), *details]
    pages[namespace] = "\n".join([*lines, *_toctree(labels)])
    return pages


def objects(namespace: str) -> list[str]:
    """Return the exported names of a namespace without modules, classes first."""
    values = exports(namespace)
    names = [name for name, value in values.items() if not inspect.ismodule(value)]
    return sorted(names, key=lambda n: (not inspect.isclass(values[n]), n.lower()))


def group_names(namespace: str) -> dict[str, list[str]]:
    """Return the names of a namespace by group, in the order of the groups."""
    names = objects(namespace)
    if namespace not in GROUPS:
        return {"": names}
    group_of: dict[str, str] = {}
    for title, selectors in GROUPS[namespace].items():
        group_of |= dict.fromkeys(selectors, title)
    groups: dict[str, list[str]] = {title: [] for title in GROUPS[namespace]}
    for name in names:
        home = getattr(value_of(f"{namespace}.{name}"), "__module__", None) or ""
        module = home.removeprefix(namespace)
        groups.setdefault(group_of.get(name) or group_of.get(module, "Other"), [])
        groups[group_of.get(name) or group_of.get(module, "Other")].append(name)
    return {title: names for title, names in groups.items() if names}


def _is_entry(namespace: str, name: str) -> bool:
    return entry_of()[f"{namespace}.{name}"] == f"{namespace}.{name}"


def _is_large(full_name: str) -> bool:
    value = value_of(full_name)
    return inspect.isclass(value) and len(members(value)) > MAX_MEMBERS


def _bases_of(full_names: Iterable[str]) -> list[str]:
    """Return the internal bases whose first public class is among the names."""
    names = set(full_names)
    bases = {base: name for base, name in shared_bases().items() if name in names}
    return [name for base, name in documented_classes().items() if base in bases]


def _entry(full_name: str) -> Iterator[str]:
    """Yield the lines of the entry of a class, function or constant."""
    value = value_of(full_name)
    if inspect.isclass(value):
        yield f".. autoclass:: {full_name}"
        if documented_bases(value):
            yield "   :show-inheritance:"
        if names := members(value):
            yield f"   :members: {', '.join(names)}"
    elif inspect.isroutine(value):
        yield f".. autofunction:: {full_name}"
    else:
        namespace, _, name = full_name.rpartition(".")
        yield f".. py:data:: {name}"
        yield f"   :module: {namespace}"
        yield f"   :value: {value!r}"
        yield ""
        yield f"   {_summary_of(full_name)}"
    yield ""


def _class_page(full_name: str) -> str:
    """Return the page of a class, with a table of its members."""
    cls = value_of(full_name)
    values = {name: inspect.getattr_static(cls, name) for name in sorted(members(cls))}
    lines = _title(cls.__name__)
    for title, is_property in (("Methods", False), ("Properties", True)):
        rows = [
            (f":py:obj:`{name} <{full_name}.{name}>`", summary(docstring_of(value)))
            for name, value in values.items()
            if _is_property(value) == is_property
        ]
        lines += [*_heading(title), *_table(rows), ""] if rows else []
    lines += [*_inherited(cls), *_heading("Details"), *_entry(full_name)]
    return "\n".join(lines)


def _compat_page() -> str:
    """Return the page of the names of other libraries: tables without entries.

    The documentation of the other library describes their arguments.
    """
    lines = [*_title(_title_of("toolkit.compat")), ".. automodule:: toolkit.compat", ""]
    for alias, namespace in compat_namespaces().items():
        rows = [
            (f"``{alias}.{name}``", summary(docstring_of(value)))
            for name, value in compat_names(namespace).items()
        ]
        lines += [*_heading(f"``{alias}``"), f".. automodule:: {namespace}", ""]
        lines += [*_table(rows), ""]
    return "\n".join(lines)


def _inherited(cls: type) -> list[str]:
    """Return lists of the members that have their entries at the bases of a class."""
    names = documented_classes()
    lines, visited = [], {*members(cls)}
    for base in cls.__mro__[1:]:
        remaining = sorted({*members(base)} - visited) if base in names else []
        visited |= {*remaining}
        links = [f":py:obj:`{name} <{names[base]}.{name}>`" for name in remaining]
        if links:
            title = f"Inherited from {base.__name__}"
            lines += [*_heading(title), ", ".join(links), ""]
    return lines


def _is_property(value: Any) -> bool:
    return not callable(getattr(value, "__func__", value))


def _rows(namespace: str, names: Iterable[str]) -> list[str]:
    """Return the table of names: each object is one row, with its other names."""
    rows: dict[str, list[str]] = {}
    for name in names:
        rows.setdefault(entry_of()[f"{namespace}.{name}"], []).append(name)
    return _table(
        (", ".join(f":py:obj:`{name} <{entry}>`" for name in names), _summary_of(entry))
        for entry, names in rows.items()
    )


def _child_table(namespace: str) -> list[str]:
    """Return the table of a section; a list of names if all have entries elsewhere."""
    names = objects(namespace)
    if any(_is_entry(namespace, name) for name in names):
        return _rows(namespace, names)
    targets = [(name, entry_of()[f"{namespace}.{name}"]) for name in names]
    return [", ".join(f":py:obj:`{name} <{entry}>`" for name, entry in targets)]


def _table(rows: Iterable[tuple[str, str]]) -> list[str]:
    lines = [".. list-table::", "   :class: names", "   :widths: 2 3", ""]
    cells = [(f"   * - {name}", f"     - {text}") for name, text in rows]
    return [*lines, *(line for pair in cells for line in pair)] if cells else []


def _summary_of(full_name: str) -> str:
    value = value_of(full_name)
    if inspect.isclass(value) or inspect.isroutine(value):
        return summary(value.__doc__ or "")
    return summary(CONSTANTS[full_name])


def summary(docstring: str) -> str:
    """Return the first line of a docstring."""
    first = inspect.cleandoc(docstring).partition("\n\n")[0].replace("\n", " ")
    return escape(first)


def escape(line: str) -> str:
    r"""Return a line with `\*` and `\|` outside of code.

    They are no emphasis and no substitution.
    """
    parts = re.split(r"(`[^`]*`)", line)
    parts[::2] = [re.sub(r"([*|])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def to_markup(lines: Iterable[str]) -> list[str]:
    r"""Return a docstring as reStructuredText.

    Outside of code there is no emphasis and no substitution, and links are links of
    Markdown. Code is in examples, and in indented blocks after a line with `::`.

    >>> to_markup(["Update by lr * g::", "", "    p = p - lr * g"])
    ['Update by lr \\* g::', '', '    p = p - lr * g']
    """
    result: list[str] = []
    is_example = is_literal = False
    for line in lines:
        is_example = line.lstrip().startswith((">>>", "...")) or (
            is_example and bool(line.strip())
        )
        is_literal = is_literal and (not line.strip() or line.startswith(" "))
        result.append(line if is_example or is_literal else _convert(line))
        is_literal = is_literal or line.endswith("::")
    return result


def _convert(line: str) -> str:
    """Escape the operators of a line, and convert its links."""
    return re.sub(r"\[([^]]+)\]\((http[^ )]+)\)", r"`\1 <\2>`__", escape(line))


def _index_page() -> str:
    lines = _title("API reference")
    rest = [n for n in public_namespaces() if _has_page(n) and n not in TITLES]
    sections = {title: [*names] for title, names in INDEX.items()} | {"More": rest}
    for title, names in sections.items():
        rows = [(f":doc:`{_title_of(n)} <{n}>`", f"``{n}``") for n in names]
        lines += [*_heading(title), *_table(rows), ""] if rows else []
    listed = [name for names in sections.values() for name in names]
    labels = {name: _title_of(name) for name in listed}
    return "\n".join([*lines, *_toctree(labels)])


def _title_of(namespace: str) -> str:
    docstring = import_module(namespace).__doc__ or namespace
    return TITLES.get(namespace) or _plain(re.split(r"[.:]\s", docstring)[0])


def _toctree(labels: Mapping[str, str]) -> list[str]:
    lines = [f"   {label} </reference/{page}>" for page, label in labels.items()]
    return [".. toctree::", "   :hidden:", "", *lines, ""] if lines else []


def _title(text: str) -> list[str]:
    return [text, "=" * len(text), ""]


def _heading(text: str) -> list[str]:
    return [text, "-" * len(text), ""]


def _plain(text: str) -> str:
    return text.replace("`", "")


def _slug(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower()).strip("-")
