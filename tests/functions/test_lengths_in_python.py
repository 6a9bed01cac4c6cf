"""Test Python code of a user that reads the length of its argument."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import toolkit

LENGTHS = (5, 7, 9, 12, 5, 40)


# Functions of a shape that return a number.
USES: dict[str, Callable[[tuple[int, ...]], Any]] = {
    "deepcopy": lambda shape: int(copy.deepcopy(shape)[1]),
    "copy": lambda shape: int(copy.copy(shape[1])),
    "pickle": lambda shape: pickle.loads(pickle.dumps(shape))[1],
    "key of a dict": lambda shape: {5: 1.5, 7: 2.5}.get(shape[1], 3.5),
    "shape as a key": lambda shape: 1.5 if shape in {(2, 5), (2, 9)} else 2.5,
    "element of a set": lambda shape: 1.5 if shape[1] in {5, 9} else 2.5,
    "equal shapes": lambda shape: 1.5 if shape == (2, 7) else 2.5,
    "text": lambda shape: (
        len(str(shape[1])) + int(f"{shape[1]:d}") + int(f"{shape}"[4])
    ),
    "format": lambda shape: int("%d" % shape[1]),  # noqa: UP031
    "range": lambda shape: sum(range(shape[1])),
    "index of a list": lambda shape: [*range(9, 60)][shape[1]],
    "slice of a list": lambda shape: len([*range(9)][: shape[1]]),
    "repeated list": lambda shape: len([0] * shape[1]),
    "sorted": lambda shape: sorted([shape[1], 8, 20])[1],
    "minimum": lambda shape: min(shape[1], 8) + max(*shape),
    "branch": lambda shape: 1.5 if shape[1] > 8 else 2.5,
    "truth": lambda shape: bool(shape[1] - 7),
    "parity": lambda shape: shape[1] % 2,
    "bits": lambda shape: (shape[1] ^ 3) + (shape[1] >> 1) + (shape[1] & 6),
    "length of bits": lambda shape: shape[1].bit_length() + (1 << shape[1] % 7),
    "round": lambda shape: round(shape[1] / 3) + round(shape[1]) + round(shape[1], -1),
    "floor": lambda shape: math.floor(shape[1] / 3) + math.floor(shape[1]),
    "ceiling": lambda shape: math.ceil(shape[1] / 4) + math.ceil(shape[1]),
    "truncation": lambda shape: math.trunc(shape[1] / 4) - ~math.trunc(shape[1]),
    "attributes": lambda shape: shape[1].real + shape[1].to_bytes(2, "little")[0],
    "square root": lambda shape: math.sqrt(shape[1]) + math.isqrt(shape[1]),
    "divisor": lambda shape: math.gcd(shape[1], 4) + shape[1] // 3,
    "fraction": lambda shape: float(Fraction(shape[1], 3)),
    "NumPy range": lambda shape: float(np.arange(shape[1]).sum()),
    "NumPy number": lambda shape: float(np.float32(2) * shape[1] + np.int64(shape[1])),
    "NumPy product": lambda shape: float(np.prod(shape)),
    "NumPy root": lambda shape: float(np.sqrt(shape[1])),
    "NumPy array": lambda shape: float(np.array(shape).sum()),
    "NumPy zeros": lambda shape: np.zeros(shape).size,
    "NumPy choice": lambda shape: float(np.where(shape[1] > 8, 1.5, 2.5)),
}


@pytest.mark.parametrize("name", USES)
@pytest.mark.filterwarnings("ignore:.*is traced for")
def test_a_use_of_the_length_has_the_value_of_each_call(name: str) -> None:
    use = USES[name]
    function = toolkit.function(lambda x: x * use(x.shape))
    for n in LENGTHS:
        x = np.ones((2, n), "float32")
        expected = np.float32(use((2, n)))
        np.testing.assert_allclose(function(x), x * expected, rtol=1e-6)


# Uses of a length after the call in which an attribute has stored it.
LATE_USES: dict[str, Callable[[Any], Any]] = {
    "operand": lambda n: toolkit.ops.ones((2,)) * n,
    "tensor": toolkit.ops.convert_to_tensor,
    "operand of a function": lambda n: toolkit.function(lambda x: x * n)(np.ones(3)),
    "sum": lambda n: toolkit.ops.ones((2,)) + (n + 1),
    "int": int,
    "comparison": lambda n: n > 8,
    "range": range,
    "shape": lambda n: toolkit.ops.ones([n]),
}


def store_lengths(*lengths: int, is_fixed: bool = False) -> Any:
    """Return the free extent that a function has stored in calls with lengths."""
    stored: list[Any] = []

    def store(x: Any) -> Any:
        stored.append(x.shape[1])
        return x * (int(x.shape[1]) if is_fixed else 2.0)

    function = toolkit.function(store)
    for n in lengths:
        function(np.ones((2, n), "float32"))
    return next(n for n in stored if type(n) is not int)


@pytest.mark.parametrize("name", LATE_USES)
@pytest.mark.parametrize("is_fixed", [False, True])
def test_a_stored_length_has_the_value_of_its_only_call(
    name: str, is_fixed: bool
) -> None:
    stored = store_lengths(5, 7, is_fixed=is_fixed)
    result, expected = (LATE_USES[name](n) for n in (stored, 7))
    np.testing.assert_array_equal(result, expected)


def test_a_stored_length_is_an_integer_after_its_only_call() -> None:
    n = store_lengths(5, 7)
    assert (f"{n}", f"{n + 1:4d}", repr(n)) == ("7", "   8", "7")
    assert pickle.loads(pickle.dumps(n)) == 7
    assert {7: "found"}[n] == "found" and n == 7 and n != 8 and max(n, 9) == 9


@pytest.mark.parametrize("name", LATE_USES)
def test_a_stored_length_has_no_value_after_calls_with_several(name: str) -> None:
    with pytest.raises(RuntimeError, match=r"store int\(x\.shape\[1\]\)"):
        LATE_USES[name](store_lengths(5, 7, 6))


@pytest.mark.parametrize("is_constant", [False, True])
def test_a_length_that_a_declared_first_run_stores_is_an_integer(
    is_constant: bool,
) -> None:
    class First(toolkit.Model):
        first = last = largest = 0

        def test_step(self, data: Any) -> Any:
            (x,) = data
            self.first = self.first or x.shape[1]
            self.last, self.largest = x.shape[1], max(self.largest, x.shape[1])
            return {"sum": toolkit.ops.sum(x) / self.first}

    lengths = [6] * 4 if is_constant else [6, 8, 7, 12]
    dataset = toolkit.data.Dataset.from_generator(
        lambda: ((np.ones((2, n), "float32"),) for n in lengths),
        output_signature=(toolkit.data.TensorSpec((None, None), "float32"),),
    )
    model = First()
    model.compile()
    logs = model.evaluate(dataset, verbose=0, return_dict=True)
    assert (logs["sum"], model.first) == (2 * lengths[-1] / 6, 6)
    if is_constant:
        assert (model.last, model.largest) == (6, 6)
    else:
        with pytest.raises(RuntimeError, match="x.shape"):
            int(model.largest)
