"""What is lowered, run from nothing but its records, against the reference."""

import numpy as np
import pytest

from tests.backends.cases import ARRAYS
from tests.backends.cases_nn import NN
from tests.backends.cupy.lowered import followed, lowered, lowered_node, node_of
from tests.backends.test_kernels import compare, expected_of
from toolkit import ops, random  # noqa: F401  (declare primitives)
from toolkit.backends.cupy.lowering import LibraryCalls, Numerics
from toolkit.backends.cupy.steps import Dnn, Product
from toolkit.ir import Spec

CONTRACT = [
    c
    for c in (*ARRAYS, *NN)
    if c.name in ("matmul", "conv", "conv_input_grad", "conv_kernel_grad")
    and c.arrays[0].dtype.kind in "fV"
]


def check(gpu, reference, case, arrays, kind):
    expected = expected_of(reference, case)
    placed = [gpu.asarray(a) for a in arrays]
    found = gpu.kernels[case.name](*placed, **case.attrs)
    compare(case, gpu.to_numpy(found), expected)
    if expected.size and arrays[0].size:
        (program, _) = list(gpu.kernels[case.name].known.values())[-1]
        assert any(isinstance(s, kind) for _, s in program.steps), program.nodes


def cases(found, every):
    """All of them, but most only among the exhaustive checks."""
    return [
        pytest.param(c, id=str(c), marks=[pytest.mark.slow] if i % every else [])
        for i, c in enumerate(found)
    ]


@pytest.mark.parametrize("case", cases(CONTRACT, 15))
def test_products_and_convolutions(gpu, reference, case):
    kind = Product if case.name == "matmul" else Dnn
    if case.name != "matmul" and case.arrays[0].dtype == np.float64:
        kind = Product
    check(gpu, reference, case, case.arrays, kind)


@pytest.mark.parametrize("on_host", [{"libraries": ("cublaslt",)}], indirect=True)
@pytest.mark.parametrize("case", cases([c for c in CONTRACT if c.name != "matmul"], 20))
def test_convolutions_without_cudnn(on_host, reference, case):
    check(on_host, reference, case, case.arrays, Product)


# What follows a product of dtype, and what one call makes of it.
FOLLOWED = [
    ("float32", ("bias",), {"epilogue": "bias"}),
    ("float64", ("bias", "relu"), {"epilogue": "relu_bias"}),
    ("float32", ("add",), {"beta": 1.0}),
    ("float16", ("bias", "add", "relu"), {"epilogue": "relu_bias", "beta": 1.0}),
    ("bfloat16", ("add", "bias"), {"epilogue": "bias", "beta": 1.0}),
    ("float32", ("scale", "add"), {"alpha": 0.25, "beta": 1.0}),
    ("bfloat16", ("cast",), {"dtypes": ("bfloat16", "float32")}),
    ("float16", ("scale", "cast", "add"), {"alpha": 0.25, "beta": 1.0}),
]


@pytest.mark.parametrize(("dtype", "follow", "expected"), FOLLOWED)
def test_what_follows_a_product_is_in_its_call(dtype, follow, expected):
    specs = [Spec((2, 4, 3), dtype), Spec((3, 5), dtype)]
    (step,) = lowered("matmul", specs, follow).steps
    assert {name: getattr(step.gemm, name) for name in expected} == expected
    assert len(step.operands) == 3 + len(step.gemm.extras)


@pytest.mark.parametrize(
    "follow", [("exp",), ("add", "add"), ("relu", "bias"), ("bias", "cast")]
)
def test_what_no_call_does_is_left_to_other_kernels(follow):
    specs = [Spec((4, 3), "bfloat16"), Spec((3, 5), "bfloat16")]
    node = followed(node_of("matmul", specs), follow)
    assert not LibraryCalls(Numerics()).follow(node.attrs["body"].nodes)
    assert lowered_node(node) is None
