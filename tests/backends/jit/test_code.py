"""Tests of the keys of generated code: each input of a function changes its key."""

from __future__ import annotations

import ast
import shutil
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import toolkit
from toolkit import layers, ops
from toolkit.backends.cupy import nvrtc
from toolkit.backends.cupy.cuda.launch import make_kernel
from toolkit.backends.numpy.jit import code, engine, llvm
from toolkit.backends.numpy.jit.builder import Builder, Value
from toolkit.backends.numpy.jit.fused import elementwise
from toolkit.backends.numpy.jit.processor import Processor, current
from toolkit.ir import PRIMITIVES
from toolkit.plans.loops.rule_digests import rule_digest
from toolkit.plans.rules import rules

PACKAGE = Path(toolkit.__file__).parent
# Imports that do not affect the text: locations of files, messages of progress and
# errors, and the properties of programs, which plans repeat if they need them.
NO_TEXT = {
    "settings",
    "thread_state",
    "errors",
    "console/progress",
    "processes/threads",
    "backends/disk_cache",
    "backends/target",
    "definitions/namespaces",
    "definitions/records",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLKIT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def generated(monkeypatch):
    """Return the names of the functions whose text was generated."""
    names = []
    text = code.Code.text
    monkeypatch.setattr(
        code.Code, "text", lambda self: names.append(self.emit.__name__) or text(self)
    )
    return names


@pytest.fixture
def another_process(monkeypatch):
    """Clear the lowered and loaded code of this process; the files stay."""

    def forget():
        monkeypatch.setattr(code, "_addresses", {})
        monkeypatch.setattr(elementwise, "_lowered_bodies", {})

    return forget


def some_code():
    return code.Code(Builder, "sum", "float32")


def emit_wide():
    builder = Builder(current().lanes)
    builder.splat(builder.constant(1.0, Value("", "float32")))
    return builder


def change_formula(monkeypatch, name, rule):
    record = replace(PRIMITIVES[name], scalar=rule)
    monkeypatch.setitem(PRIMITIVES, name, record)
    return record


def test_another_formula_is_not_served_from_the_cache(
    folder, generated, another_process, monkeypatch
):
    another_process()
    x = np.linspace(-2, 2, 100, dtype="float32")
    old = toolkit.function(ops.sigmoid)(x).numpy()
    np.testing.assert_allclose(old, 1 / (1 + np.exp(-x)), rtol=1e-6)
    another_process()
    change_formula(monkeypatch, "sigmoid", lambda s, x: s.multiply(x, x))
    new = toolkit.function(ops.sigmoid)(x).numpy()
    np.testing.assert_array_equal(new, x * x)
    assert len(generated) == 2


def epilogue(record, inputs):
    """The body of a product that an elementwise primitive follows."""
    from toolkit.backends.numpy.jit.epilogue import BodyStructure
    from toolkit.core.tensor import Tensor
    from toolkit.ir import Graph, Node, Spec

    a, b, y, z = (Tensor(None, Spec((8, 8), "float32")) for _ in range(4))
    product = Node(PRIMITIVES["matmul"], (a, b), {}, (y,))
    follows = Node(record, (y,) * inputs, {}, (z,))
    return repr(BodyStructure(Graph((a, b), (product, follows), (z,))))


@pytest.mark.parametrize(
    "name", [n for n, p in PRIMITIVES.items() if p.scalar and n != "cast"]
)
def test_epilogue_key_includes_every_formula(name):
    record = PRIMITIVES[name]
    count = record.scalar.__code__.co_argcount - 1
    other = replace(record, scalar=lambda s, *xs: s.negative(record.scalar(s, *xs)))
    assert epilogue(record, count) == epilogue(record, count)
    assert epilogue(record, count) != epilogue(other, count)


def test_formula_keys_distinguish_constants_operations_and_order():
    rules = [
        lambda s, x, y: s.add(x, y),
        lambda s, x, y: s.add(y, x),
        lambda s, x, y: s.subtract(x, y),
        lambda s, x, y: s.add(x, s.const(1.0, y)),
        lambda s, x, y: s.add(x, s.const(1.5, y)),
        lambda s, x, y: s.add(s.add(x, y), y),
        lambda s, x, y: x,
        lambda s, x, y: y,
    ]
    assert len({rule_digest(rule, 2, ()) for rule in rules}) == len(rules)
    attrs = [(("dtype", "int8"),), (("dtype", "int16"),)]
    cast = PRIMITIVES["cast"].scalar
    assert rule_digest(cast, 1, attrs[0]) != rule_digest(cast, 1, attrs[1])


@pytest.mark.parametrize("fact", [field.name for field in fields(Processor)])
def test_another_processor_is_another_key(fact):
    before, host = some_code().key, Processor.host()
    value = getattr(host, fact)
    other = value + " another" if isinstance(value, str) else not value
    with rules.override(processor=replace(host, **{fact: other})):
        assert some_code().key != before


def test_another_compiler_is_another_key(monkeypatch):
    before = some_code().key
    monkeypatch.setattr(llvm, "version", lambda: "another")
    assert some_code().key != before


def test_an_equal_processor_is_the_same_key():
    before = some_code().key
    with rules.override(processor=replace(Processor.host())):
        assert some_code().key == before


def test_text_belongs_to_the_processor_of_its_lowering():
    with rules.override(processor=Processor.host().with_lanes(4)):
        narrow = code.Code(emit_wide)
    assert "<4 x float>" in narrow.text()


@pytest.mark.parametrize(
    "name, value",
    [
        ("FORMAT", "another"),
        ("SETTINGS", {**engine.SETTINGS, "opt": 3}),
        ("SETTINGS", {**engine.SETTINGS, "codemodel": "large"}),
    ],
)
def test_other_settings_are_another_key(name, value, monkeypatch):
    before = some_code().key
    monkeypatch.setattr(engine, name, value)
    assert some_code().key != before


def test_other_flags_are_another_key(monkeypatch):
    before = some_code().key
    monkeypatch.setattr(llvm, "FLAGS", ())
    assert some_code().key != before


def test_change_of_the_generator_is_another_key(tmp_path, monkeypatch):
    sources = code.generator_sources()
    copies = [tmp_path / f"{i}.py" for i in range(len(sources))]
    for source, copy in zip(sources, copies, strict=True):
        shutil.copy(source, copy)
    monkeypatch.setattr(code, "generator_sources", lambda: copies)
    digest = code.generator_digest.__wrapped__
    digests = {digest()}
    for copy in copies:
        content = copy.read_bytes()
        copy.write_bytes(content + b"# changed\n")
        digests.add(digest())
        copy.write_bytes(content)
    assert digest() == code.generator_digest()
    assert len(digests) == 1 + len(copies)


def test_digest_includes_imports_of_the_generator():
    sources = {p.relative_to(PACKAGE).as_posix() for p in code.generator_sources()}
    assert "backends/numpy/jit/runtime.ll" in sources
    for name in sorted(s for s in sources if "/jit/" in s or s.startswith("plans/")):
        if not name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse((PACKAGE / name).read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("toolkit"):
                names = ["", *(f".{alias.name}" for alias in node.names)]
                modules = [node.module + n for n in names]
                paths = [m.partition(".")[2].replace(".", "/") for m in modules]
                files = [p for p in paths if p and (PACKAGE / f"{p}.py").exists()]
                for path in set(files) - NO_TEXT:
                    assert f"{path}.py" in sources, f"{name} imports {path}"


def network():
    toolkit.utils.set_random_seed(0)
    model = toolkit.Sequential(
        [
            toolkit.Input((8, 8, 3)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(4, activation="sigmoid"),
            layers.Dense(2, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def test_a_warm_start_generates_nothing(folder, generated, another_process):
    random = np.random.default_rng(0)
    x, y = random.random((16, 8, 8, 3), np.float32), random.integers(0, 2, 16)
    another_process()
    network().fit(x, y, batch_size=8, verbose=0)
    assert generated
    del generated[:]
    another_process()
    network().fit(x, y, batch_size=8, verbose=0)
    assert not generated


@pytest.mark.parametrize("changed", ["version", "OPTIONS", "arch", "runtime", "source"])
def test_gpu_code_key_includes_all_inputs(changed, monkeypatch):
    kernel = make_kernel("copy", "void copy() {}", ())
    monkeypatch.setattr(nvrtc, "version", lambda: "13.0")
    before = nvrtc.key(kernel, 90, "13000")
    assert nvrtc.key(kernel, 90, "13000") == before
    if changed == "version":
        monkeypatch.setattr(nvrtc, "version", lambda: "13.1")
    if changed == "OPTIONS":
        monkeypatch.setattr(nvrtc, "OPTIONS", (*nvrtc.OPTIONS, "-use_fast_math"))
    if changed == "source":
        kernel = replace(kernel, source=f"{kernel.source}\n")
    arch = 80 if changed == "arch" else 90
    runtime = "12090" if changed == "runtime" else "13000"
    assert nvrtc.key(kernel, arch, runtime) != before
