"""Tests of the architecture on the sources: levels, late imports, names and sizes."""

import ast
import gc
import re
from functools import cache
from pathlib import Path
from runpy import run_path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "toolkit"

LEVELS = (
    (
        *("errors", "machine", "release", "settings", "dtypes", "tree", "thread_state"),
        *("arguments", "type_aliases", "definitions", "console", "files", "pictures"),
        *("processes", "buffer_pool"),
        "reading",
    ),
    ("ir", "data", "comm"),
    ("plans",),
    ("backends",),
    # Plug-ins are found by name.
    ("backends/cupy", "backends/numpy", "backends/reference"),
    ("core", "compiler", "serialization"),
    ("ops",),
    ("autodiff", "control_flow", "functions", "inspection", "random"),
    (
        *("activations", "initializers", "regularizers", "constraints"),
        *("losses", "metrics", "dtype_policies", "quantizers"),
    ),
    ("layers", "optimizers"),
    ("export",),
    ("models",),
    ("mixed_precision", "saving"),
    ("config",),
    (
        *("backend", "callbacks", "datasets", "utils", "bench", "cli", "launch"),
        "serving",
    ),
    ("wrappers", "visualization", "distillation", "distribution", "ray"),
    ("legacy", "preprocessing", "applications"),
    ("__init__", "__main__"),
    ("compat",),
)
LEVEL_OF = {part: level for level, parts in enumerate(LEVELS) for part in parts}

OPTIONAL = {
    *("cloudpickle", "cudnn", "cupy", "cupyx", "google_crc32c", "h5py", "llvmlite"),
    *("matplotlib", "mkl", "ml_dtypes", "mpi4py", "onnx", "openvino", "PIL", "ray"),
    *("re2", "sklearn", "tqdm", "zmq"),
}
NAMES_OF_BACKENDS = {"cupy", "numpy", "reference"}
# `info` names packages, and two of them have the names of backends.
MAY_NAME_BACKENDS = ("backends/", "compiler/passes/placement.py", "settings.py")
MAY_NAME_BACKENDS += ("cli/info.py",)
MAX_FILE = 450  # lines without the docstrings
MAX_FUNCTION = 60  # lines without the docstring


@cache
def sources():
    """Return the syntax tree of every module, by path inside the package."""
    gc.disable()  # a million live nodes: no garbage to collect
    try:
        return {
            path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text("utf-8"))
            for path in sorted(PACKAGE.rglob("*.py"))
        }
    finally:
        gc.enable()


@cache
def imports_by_path():
    """Return the result of `imports` for every module, by path inside the package."""
    return {path: list(find_imports(tree)) for path, tree in sources().items()}


def top_level_part(name):
    """Return the top-level file or folder that contains a path or module.

    Each backend counts as a separate part.
    """
    first, *suffix = re.split(r"[/.]", name)
    backend = "/".join([first, *suffix[:1]])
    return backend if backend in LEVEL_OF else first


def is_type_checking(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def find_imports(tree, late=False):
    """Return (module, line, is in a function) of imports, without type imports."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, late
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}"
            if node.module == "toolkit":
                for alias in node.names:
                    yield f"toolkit.{alias.name}", node.lineno, late
            else:
                yield node.module, node.lineno, late
        elif is_type_checking(node):
            yield from find_imports(ast.Module(node.orelse, []), late)
        elif not isinstance(node, ast.expr):
            inner = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            yield from find_imports(node, late or inner)


def internal_imports():
    """Return (path, line, importing part, imported part) of imports between parts."""
    for path, imports in imports_by_path().items():
        importer = top_level_part(path)
        for module, line, _ in imports:
            if module.startswith("toolkit."):
                imported = top_level_part(module.removeprefix("toolkit."))
                # A name that is not a part is a name that the package itself exports.
                imported = imported if imported in LEVEL_OF else "__init__"
                if imported != importer:
                    yield path, line, importer, imported


def docstrings(tree):
    """Return the nodes that are docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                yield first.value


def named_backends(tree):
    """Return (line, name) of each backend that code names, without docstrings."""
    prose = {id(node) for node in docstrings(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in prose:
            if node.value in NAMES_OF_BACKENDS:
                yield node.lineno, node.value
        elif isinstance(node, (ast.Name, ast.Attribute)):
            name = node.id if isinstance(node, ast.Name) else node.attr
            if name == "cupy":
                yield node.lineno, name
    for module, line, _ in find_imports(tree):
        if top_level_part(module) in ("cupy", "cupyx"):
            yield line, module


def find_cycle(edges):
    """Return a list of names that form an import cycle, or None."""
    state = {}

    def visit(name, trail):
        if state.get(name) == "done":
            return None
        if name in trail:
            return [*trail[trail.index(name) :], name]
        for following in sorted(edges.get(name, ())):
            if cycle := visit(following, [*trail, name]):
                return cycle
        state[name] = "done"
        return None

    for name in sorted(edges):
        if cycle := visit(name, []):
            return cycle
    return None


def test_every_part_has_a_level():
    assert {top_level_part(path) for path in sources()} <= set(LEVEL_OF), (
        "a new part needs a place in LEVELS"
    )


def test_imports_go_down():
    wrong = [
        f"toolkit/{path}:{line} {importer} imports {imported}, which is above it"
        for path, line, importer, imported in internal_imports()
        if LEVEL_OF[importer] < LEVEL_OF[imported]
    ]
    assert not wrong, "\n".join(wrong)


def test_no_cycle_within_a_level():
    edges = {}
    for _, _, importer, imported in internal_imports():
        if LEVEL_OF[importer] == LEVEL_OF[imported]:
            edges.setdefault(importer, set()).add(imported)
    assert find_cycle(edges) is None


def test_optional_packages_are_imported_late():
    wrong = [
        f"toolkit/{path}:{line} imports {module} at the top"
        for path, imports in imports_by_path().items()
        for module, line, late in imports
        if top_level_part(module) in OPTIONAL and not late
    ]
    assert not wrong, "\n".join(wrong)


def test_no_backend_is_named_above_the_backends():
    wrong = [
        f"toolkit/{path}:{line} names {name}"
        for path, tree in sources().items()
        if not path.startswith(MAY_NAME_BACKENDS)
        for line, name in named_backends(tree)
    ]
    assert not wrong, "\n".join(wrong)


def test_counts_do_not_grow():
    house = run_path(str(ROOT / "scripts" / "code_metrics"))["SourceTree"](ROOT)
    assert len(house.largest_cycle()) <= 8
    assert house.late_imports() <= 10
    assert len(house.root_modules) <= 20
    assert house.count("type: ignore") <= 80
    assert house.any_in_signatures <= 8880
    identities = r"(?<![\w.])id\("  # values, nodes and Variables are dictionary keys
    assert house.count(identities, "compiler") <= 10
    assert house.count(identities) <= 120


def test_tests_use_few_internals():
    """A test of public behaviour remains valid when the implementation changes."""
    tests = run_path(str(ROOT / "scripts" / "code_metrics"))["TestTree"](ROOT)
    assert tests.private_names <= 235
    assert tests.replaced_objects <= 210


def test_warnings_name_the_users_line():
    wrong = [
        f"{path}:{node.lineno}: use frames.warn"
        for path, tree in sources().items()
        for node in ast.walk(tree)
        if path != "console/frames.py" and isinstance(node, ast.Attribute)
        if node.attr.startswith("warn")
        and ast.unparse(node).startswith("warnings.warn")
    ]
    assert not wrong, "\n".join(wrong)


def test_files_are_short():
    lengths = {
        path: len((PACKAGE / path).read_text("utf-8").splitlines())
        - sum(node.end_lineno - node.lineno + 1 for node in docstrings(tree))
        for path, tree in sources().items()
    }
    assert {p: n for p, n in lengths.items() if n > MAX_FILE} == {}


def test_functions_are_short():
    lengths = {}
    for path, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                if body:
                    length = node.end_lineno - body[0].lineno + 1
                    lengths[f"{path}:{node.lineno} {node.name}"] = length
    assert {name: n for name, n in lengths.items() if n > MAX_FUNCTION} == {}


# --- tests of the checks ------------------------------------------------------------


@pytest.mark.parametrize(
    "source, expected",
    [
        ("import a.b", [("a.b", 1, False)]),
        (
            "from toolkit import x, y",
            [("toolkit.x", 1, False), ("toolkit.y", 1, False)],
        ),
        ("def f():\n    from h5py import File", [("h5py", 2, True)]),
        ("class A:\n    import b", [("b", 2, False)]),
        ("try:\n    import b\nexcept E:\n    pass", [("b", 2, False)]),
        ("if TYPE_CHECKING:\n    import a\nelse:\n    import b", [("b", 4, False)]),
    ],
)
def test_imports_are_found(source, expected):
    assert list(find_imports(ast.parse(source))) == expected


@pytest.mark.parametrize(
    "source, expected",
    [
        ("'numpy is fine in prose'", []),
        ("x = 'numpy'", [(1, "numpy")]),
        ("import numpy as np", []),
        ("if backend == 'cupy': pass", [(1, "cupy")]),
        ("def f():\n    import cupy.cuda", [(2, "cupy.cuda")]),
        ("x = backends.cupy.name", [(1, "cupy")]),
    ],
)
def test_names_of_backends_are_found(source, expected):
    assert list(named_backends(ast.parse(source))) == expected


@pytest.mark.parametrize(
    "edges, expected",
    [
        ({"a": {"b"}, "b": {"c"}}, None),
        ({"a": {"b", "c"}, "b": {"c"}}, None),
        ({"a": {"b"}, "b": {"c"}, "c": {"b"}}, ["b", "c", "b"]),
    ],
)
def test_cycles_are_found(edges, expected):
    assert find_cycle(edges) == expected


def documented_names(text, section):
    """Yield the names that a section of a docstring describes."""
    _, _, rest = (text or "").partition(f"{section}:\n")
    block = re.split(r"\n\n|\n(?=\S)", rest)[0]
    for line in block.splitlines():
        if match := re.match(r" {4}(?! )([\w, `*]+):(?: |$)", line):
            yield from (name.strip("`* ") for name in match[1].split(","))


def parameters_of(node):
    """Return the names of parameters of a function or class, None for any name."""
    if isinstance(node, ast.ClassDef):
        methods = {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}
        node = methods.get("__init__") or methods.get("__new__")
    if node is None or node.args.kwarg is not None:
        return None
    return {child.arg for child in ast.walk(node.args) if isinstance(child, ast.arg)}


def test_documented_arguments_exist():
    """A renamed parameter has its new name in the docstring, too."""
    wrong = [
        f"toolkit/{path}:{node.lineno} {node.name}: {name}"
        for path, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        if (parameters := parameters_of(node)) is not None
        for name in documented_names(ast.get_docstring(node), "Args")
        if name not in parameters
    ]
    assert not wrong, "\n".join(wrong)


def test_documented_names_are_found():
    text = (
        "Sum.\n\nArgs:\n    a, b: terms,\n        here: none.\n    **c: more.\n\nx: y"
    )
    assert [*documented_names(text, "Args")] == ["a", "b", "c"]


# --- private names of the core in `compat` ------------------------------------------


OF_NAMED_TUPLES = {"_asdict", "_fields", "_replace"}


def is_private(name):
    is_special = name.endswith("__") or name in OF_NAMED_TUPLES
    return name.startswith("_") and not is_special


def is_self(node):
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def bound_names(node):
    """Return the private names that a class, or the classes of a module, define."""
    names = set()
    for child in ast.walk(node):
        if isinstance(child, ast.ClassDef):
            for member in child.body:
                targets = getattr(member, "targets", [getattr(member, "target", None)])
                names |= {target.id for target in targets if hasattr(target, "id")}
                names.add(getattr(member, "name", ""))
        elif isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store):
            names |= {child.attr} if is_self(child.value) else set()
    return set(filter(is_private, names))


def imported_names(tree):
    """Return the full name of each name that a module imports."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def private_accesses(compat, core):
    """Return the uses of private names of `core` in the modules of `compat`.

    A name counts if a class of the core binds it, and no class of the file does.
    Overrides count, too: a class of `compat` that binds a name of its base in the core.

    Args:
        compat: the syntax tree of each module, by path.
        core: the syntax trees of the other modules.
    """
    classes = {}
    for tree in core:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(node)
    names_of_core = set().union(*map(bound_names, core))
    names_of_compat = set().union(*map(bound_names, compat.values()))

    def names_of_class(name, visited=()):
        names = set()
        for node in classes.get(name, ()) if name not in visited else ():
            names |= bound_names(node)
            for base in node.bases:
                base_name = ast.unparse(base).split(".")[-1]
                names |= names_of_class(base_name, (*visited, name))
        return names

    def find(tree):
        imports, own_names = imported_names(tree), bound_names(tree)
        for source in imports.values():
            is_core = source.startswith("toolkit.")
            if is_core and not source.startswith("toolkit.compat"):
                yield from filter(is_private, source.split("."))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in names_of_core:
                own = names_of_compat if is_self(node.value) else own_names
                if node.attr not in own:
                    yield ast.unparse(node)
            elif isinstance(node, ast.ClassDef):
                for base in node.bases:
                    first, *rest = ast.unparse(base).split(".")
                    source = ".".join([imports.get(first, ""), *rest])
                    if source.startswith("toolkit.") and ".compat." not in source:
                        overridden = names_of_class(source.split(".")[-1])
                        for name in sorted(bound_names(node) & overridden):
                            yield f"{node.name}.{name}"

    return [f"{path}: {use}" for path, tree in compat.items() for use in find(tree)]


def test_compat_uses_no_private_names_of_the_core():
    modules = sources().items()
    compat = {path: tree for path, tree in modules if path.startswith("compat/")}
    core = [tree for path, tree in modules if not path.startswith("compat/")]
    assert private_accesses(compat, core) == []


@pytest.mark.parametrize(
    "source, expected",
    [
        ("tensor._data", ["tensor._data"]),
        ("class A:\n    def f(self, x): self._data = x._data", []),
        ("class A(list):\n    def f(self): self._data", ["self._data"]),
        ("from toolkit.core import Base\nclass A(Base): _data = 1", ["A._data"]),
        ("from toolkit.compat import Base\nclass A(Base): _data = 1", []),
        ("from toolkit.core import _function", ["_function"]),
        ("from toolkit.compat import _function", []),
        ("tensor._replace()", []),
        ("tensor._unrelated", []),
    ],
)
def test_private_names_are_found(source, expected):
    core = ast.parse("class Base:\n    _data = 0")
    uses = private_accesses({"a.py": ast.parse(source)}, [core])
    assert uses == [f"a.py: {use}" for use in expected]
