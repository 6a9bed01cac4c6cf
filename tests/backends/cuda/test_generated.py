"""Generated CUDA on the processor, against the reference."""

import numpy as np
import pytest

from tests.backends.cases import ARRAYS, ELEMENTWISE, VIEWS
from tests.backends.cases_nn import NN
from tests.backends.cuda.host import GXX, Host
from tests.backends.test_kernels import compare, expected_of, specs_of, strided
from toolkit import ops, random  # noqa: F401  (declare primitives)
from toolkit.backends import get_backend
from toolkit.backends.cupy.cuda.generators import generate
from toolkit.core.tensor import Tensor
from toolkit.ir import PRIMITIVES, Node
from toolkit.plans.operands import Operand, contiguous

pytestmark = pytest.mark.skipif(GXX is None, reason="g++ is not installed")
# Whether a case is one of the fewer that are always tried.
EVERY = 23
REST = [*ARRAYS, *NN]
FAMILIES = {
    "elementwise": ELEMENTWISE,
    "arrays": ARRAYS,
    "views": VIEWS,
    "nn": NN,
}


def is_special(case):
    """Whether a case tries NaN, infinities and their like in float32."""
    x = np.asarray(case.arrays[-1])
    return x.dtype == np.float32 and not np.isfinite(x).all()


def operand(array, spec):
    return Operand(spec, array.strides)


def generated(case, arrays):
    """Return the launches of a case's node for arrays with these layouts."""
    inputs, results = specs_of(case)
    arrays = [np.asarray(a) for a in arrays]
    values = [Tensor(None, spec) for spec in inputs]
    outputs = [Tensor(None, spec) for spec in results]
    node = Node(PRIMITIVES[case.name], values, case.attrs, outputs)
    operands = [operand(a, spec) for a, spec in zip(arrays, inputs, strict=True)]
    aligned = all(a.ctypes.data % 16 == 0 for a in arrays)
    return generate(node, operands, [contiguous(spec) for spec in results], aligned)


def check(cases, folder, check_both=True):
    """Every case, compiled together, in both layouts of its inputs or in one."""
    reference = get_backend("reference")
    work = []
    layouts = (np.ascontiguousarray, lambda a: strided(reference, a))
    for number, case in enumerate(cases):
        for lay in layouts if check_both else layouts[number % 2 :][:1]:
            arrays = [lay(a).reshape(a.shape) for a in case.arrays]
            launches = generated(case, arrays)
            if launches is not None:
                work.append((case, arrays, launches))
    assert work
    host = Host([x for _, _, launches in work for x in launches], folder)
    wrong = []
    for case, arrays, launches in work:
        _, results = specs_of(case)
        expected = expected_of(reference, case)
        try:
            actual, _ = host.run(launches, arrays, results)
            compare(case, tuple(actual) if len(actual) > 1 else actual[0], expected)
        except AssertionError as error:
            wrong.append(f"{case}: {str(error)[:600]}")
    assert not wrong, f"{len(wrong)} of {len(work)}:\n" + "\n".join(wrong[:20])


@pytest.mark.parametrize("family", FAMILIES)
def test_sampled_cases_match_numpy(family, tmp_path):
    cases = FAMILIES[family]
    check([*cases[::EVERY], *filter(is_special, cases)], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_all_cases_match_numpy(family, tmp_path):
    check(FAMILIES[family], tmp_path, check_both=False)
