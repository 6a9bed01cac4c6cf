"""Tests of the API that docs/guides/extending.md documents for new operations."""

import ast
import re
from importlib import import_module, reload
from pathlib import Path

import numpy as np
import pytest

import toolkit
from tests.backends.cases import Case, sample
from tests.backends.cuda.host import GXX
from tests.backends.cuda.test_generated import check as check_cuda
from tests.helpers import check_grads
from toolkit import layers
from toolkit.backends import get_backend
from toolkit.backends.cupy.cuda.generators import GENERATORS
from toolkit.backends.numpy.jit.fused.elementwise import is_fusable
from toolkit.backends.numpy.jit.lowering import LOWERINGS
from toolkit.compiler.fusion.recompute import is_expensive
from toolkit.core.tensor import Tensor
from toolkit.ir import PRIMITIVES, Kind, Node, Spec
from toolkit.ir.scalars import SCALARS

ROOT = Path(__file__).resolve().parents[1]
EXPECTED = {
    "squash": lambda x: x / np.sqrt(1 + x * x),
    "two_to": np.exp2,
    "mirror": lambda x: x[..., ::-1],
}


@pytest.fixture(scope="module")
def outside_module():
    module = import_module("tests.outside")
    if "squash" not in PRIMITIVES:  # an earlier test module removed it
        module = reload(module)
    yield module
    module.forget()


@pytest.fixture(params=["numpy", "reference"])
def backend(request):
    before = toolkit.config.backend()
    toolkit.config.set_backend(request.param)
    yield request.param
    toolkit.config.set_backend(before)


@pytest.mark.parametrize("name", EXPECTED)
def test_values_and_gradients(name, outside_module, backend):
    function = outside_module.FUNCTIONS[name]
    x = np.random.default_rng(0).normal(size=(5, 7))
    np.testing.assert_allclose(function(x), EXPECTED[name](x), 1e-12)
    compiled = toolkit.function(lambda x: function(x * 1) + 1)
    np.testing.assert_allclose(compiled(x), EXPECTED[name](x) + 1, 1e-12)
    check_grads(function, [x], order=2)


@pytest.mark.parametrize("name", EXPECTED)
def test_models_train_with_new_operations(name, outside_module, backend):
    x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    y = np.sin(x.sum(axis=1, keepdims=True))
    losses = []
    for eager in (False, True):
        toolkit.utils.set_random_seed(0)
        inputs = layers.Input((4,))
        hidden = outside_module.FUNCTIONS[name](layers.Dense(8)(inputs))
        model = toolkit.Model(inputs, layers.Dense(1)(hidden))
        model.compile(toolkit.optimizers.Adam(0.05), "mse", run_eagerly=eager)
        history = model.fit(x, y, batch_size=16, epochs=4, shuffle=False, verbose=0)
        losses.append(history.history["loss"])
    assert losses[0][-1] < 0.9 * losses[0][0]
    np.testing.assert_allclose(*losses, rtol=1e-4)


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_backend_computes_new_operations(name, dtype, outside_module):
    x = np.random.default_rng(0).normal(size=(3, 5)).astype(dtype)
    for backend in map(get_backend, ("numpy", "reference")):
        out = np.empty_like(x)
        assert backend.kernels.supports(name)
        assert backend.kernels[name](x, out=out) is out
        limit = {"float16": 2e-3, "float32": 1e-6}.get(dtype, 1e-12)
        np.testing.assert_allclose(out, EXPECTED[name](x), limit)


def node_of(name, dtype="float32"):
    spec = Spec((3, 5), dtype)
    return Node(PRIMITIVES[name], [Tensor(None, spec)], {}, [Tensor(None, spec)])


def test_code_is_generated(outside_module):
    pytest.importorskip("llvmlite")
    assert is_fusable(node_of("squash"))
    assert is_fusable(node_of("two_to"))
    assert not is_fusable(node_of("two_to", "int32"))
    step = toolkit.function(
        lambda x: outside_module.mirror(outside_module.squash(x) + 1)
    )
    x = np.ones((64, 3), "float32")
    step(x)
    names = [kernel.name for kernel in step.inspect(x).kernels]
    assert names == ["squash, add", "mirror"]


@pytest.mark.skipif(GXX is None, reason="g++ is not installed")
def test_cuda_is_generated(outside_module, tmp_path):
    cases = [
        Case(name, (sample((4, 9), dtype),))
        for name in EXPECTED
        for dtype in ("float16", "float32", "float64")
    ]
    check_cuda(cases, tmp_path)


def test_properties_follow_from_the_rule(outside_module):
    assert PRIMITIVES["squash"].cost == 4 + 4 + 1 + 1
    assert not is_expensive(node_of("squash"))
    assert is_expensive(node_of("two_to"))
    assert PRIMITIVES["log1p"].domain == (-1, np.inf)
    assert PRIMITIVES["rsqrt"].domain == (0, np.inf)


def test_duplicate_or_wrong_declarations_are_refused(outside_module):
    with pytest.raises(ValueError, match="'squash' is declared twice"):
        outside_module.elementwise("squash", lambda s, x: x)
    with pytest.raises(ValueError, match="'two_to' is declared twice"):
        outside_module.scalar("two_to")
    with pytest.raises(AttributeError, match="unknown scalar function 'cosinus'"):
        outside_module.elementwise("wrong", lambda s, x: s.cosinus(x))
    assert "wrong" not in PRIMITIVES


# --- inside the package ---------------------------------------------------------------


def words_in(path):
    """Return every word in the strings of a module that are names or lists of names."""
    tree = ast.parse(path.read_text("utf-8"))
    prose = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in prose and re.fullmatch(r"[\w\s]+", node.value):
                yield from node.value.split()


def test_float_functions_are_named_only_in_their_record_and_row():
    functions = {name for name, word in SCALARS.items() if word.vml}
    assert len(functions) > 15
    named = {
        path.relative_to(ROOT / "toolkit").as_posix(): names
        for folder in ("backends", "compiler", "core", "ops")
        for path in (ROOT / "toolkit" / folder).rglob("*.py")
        if (names := functions & set(words_in(path)))
    }
    assert named.pop("ops/transcendental.py") == functions
    # Modules that call these functions, their number of calls of NumPy, and namespaces
    # where Keras has them.
    allowed = {"trigonometric.py", "scalars.py", "attention.py", "padded.py"}
    allowed.add("keras_modules.py")
    assert {Path(path).name for path in named} <= allowed


def test_elementwise_operations_have_no_separate_generator():
    elementwise = {n for n, p in PRIMITIVES.items() if p.kind is Kind.ELEMENTWISE}
    assert elementwise & {*LOWERINGS, *GENERATORS} == {"stop_gradient"}
