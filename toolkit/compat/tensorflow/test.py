"""`tf.test`: test cases that compare tensors, and the available devices."""

from __future__ import annotations

import shutil
import tempfile
import unittest
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from toolkit import tree
from toolkit.compat.tensorflow.arguments import refuse
from toolkit.compat.tensorflow.config import list_physical_devices
from toolkit.type_aliases import Array, DTypeLike, TensorLike

# Tolerances of the 16-bit floating-point types.
_NARROW = {"float16": 1e-3, "bfloat16": 1e-2}


class TestCase(unittest.TestCase):
    """unittest's TestCase with comparisons of tensors and arrays, and nests of them.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> class SquareTest(tf.test.TestCase):
        ...     def test_square(self):
        ...         self.assertAllClose(tf.square([1.0, 2.0]), [1.0, 4.0])
        >>> SquareTest("test_square").run().wasSuccessful()
        True
    """

    def evaluate(self, tensors: Any) -> Any:
        """Return the values of tensors, and of nests of tensors, as arrays."""
        return tree.map_structure(np.asarray, tensors)

    @contextmanager
    def session(
        self,
        graph: Any = None,
        config: Any = None,
        use_gpu: bool = True,
        force_gpu: bool = False,
    ) -> Iterator[Any]:
        """Run the code inside eagerly; the session is None.

        Args:
            graph: only None.
            config, use_gpu, force_gpu: have no effect.
        """
        refuse("TestCase.session", graph=(graph, None))
        yield None

    cached_session = session

    def get_temp_dir(self) -> str:
        """Return a temporary folder, the same in each call, which is removed after the
        test."""
        if not hasattr(self, "_folder"):
            self._folder = tempfile.mkdtemp()
            self.addCleanup(shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    # --- equal and close --------------------------------------------------------------

    def assertAllEqual(self, a: Any, b: Any, msg: str | None = None) -> None:
        """Raise unless shapes and all elements are equal."""
        self.assertShapeEqual(a, b, msg)
        np.testing.assert_array_equal(a, b, msg or "")

    def assertNotAllEqual(self, a: Any, b: Any, msg: str | None = None) -> None:
        """Raise if all elements are equal."""
        if np.array_equal(a, b):
            self.fail(self._formatMessage(msg, "all elements are equal"))

    def assertAllClose(
        self,
        a: Any,
        b: Any,
        rtol: float = 1e-6,
        atol: float = 1e-6,
        msg: str | None = None,
    ) -> None:
        """Raise unless |a - b| <= atol + rtol * |b| everywhere, in nests too.

        Shapes must be equal.
        """
        a, b = _as_nest(a), _as_nest(b)
        tree.assert_same_structure(a, b)
        for one, other in zip(tree.flatten(a), tree.flatten(b), strict=True):
            self.assertShapeEqual(one, other, msg)
            np.testing.assert_allclose(one, other, rtol, atol, err_msg=msg or "")

    def assertAllCloseAccordingToType(
        self,
        a: Any,
        b: Any,
        rtol: float = 1e-6,
        atol: float = 1e-6,
        msg: str | None = None,
    ) -> None:
        """Call `assertAllClose` with tolerance 1e-3 for float16 and 1e-2 for
        bfloat16."""
        leaves = [np.asarray(x) for x in (*tree.flatten(a), *tree.flatten(b))]
        tolerance = max((_NARROW.get(x.dtype.name, 0.0) for x in leaves), default=0.0)
        rtol, atol = max(rtol, tolerance), max(atol, tolerance)
        self.assertAllClose(_widen(a), _widen(b), rtol, atol, msg)

    def assertNotAllClose(
        self,
        a: Any,
        b: Any,
        rtol: float = 1e-6,
        atol: float = 1e-6,
        msg: str | None = None,
    ) -> None:
        """Raise if all elements are close."""
        try:
            self.assertAllClose(a, b, rtol, atol)
        except AssertionError:
            return
        self.fail(self._formatMessage(msg, "all elements are close"))

    def assertNear(self, f1: Any, f2: Any, err: float, msg: str | None = None) -> None:
        """Raise unless two numbers differ by at most `err`."""
        self.assertAllClose(f1, f2, rtol=0.0, atol=err, msg=msg)

    def assertArrayNear(
        self, farray1: Any, farray2: Any, err: float, msg: str | None = None
    ) -> None:
        """Raise unless all elements differ by at most `err`."""
        self.assertAllClose(farray1, farray2, rtol=0.0, atol=err, msg=msg)

    # --- conditions for all elements --------------------------------------------------

    def assertAllInRange(
        self,
        target: Any,
        lower_bound: float,
        upper_bound: float,
        open_lower_bound: bool = False,
        open_upper_bound: bool = False,
    ) -> None:
        """Raise unless all elements are between the bounds."""
        x = np.asarray(target)
        low = x > lower_bound if open_lower_bound else x >= lower_bound
        high = x < upper_bound if open_upper_bound else x <= upper_bound
        self._assert_all(low & high, f"between {lower_bound} and {upper_bound}", x)

    def assertAllInSet(self, target: Any, expected_set: Any) -> None:
        """Raise unless each element is in the expected set."""
        x = np.asarray(target)
        self._assert_all(np.isin(x, list(expected_set)), f"one of {expected_set}", x)

    def assertAllGreater(self, a: Any, comparison_target: Any) -> None:
        """Raise unless all elements are greater."""
        x = np.asarray(a)
        self._assert_all(x > comparison_target, f"> {comparison_target}", x)

    def assertAllGreaterEqual(self, a: Any, comparison_target: Any) -> None:
        """Raise unless all elements are greater or equal."""
        x = np.asarray(a)
        self._assert_all(x >= comparison_target, f">= {comparison_target}", x)

    def assertAllLess(self, a: Any, comparison_target: Any) -> None:
        """Raise unless all elements are less."""
        x = np.asarray(a)
        self._assert_all(x < comparison_target, f"< {comparison_target}", x)

    def assertAllLessEqual(self, a: Any, comparison_target: Any) -> None:
        """Raise unless all elements are less or equal."""
        x = np.asarray(a)
        self._assert_all(x <= comparison_target, f"<= {comparison_target}", x)

    def _assert_all(self, holds: Array, condition: str, x: Array) -> None:
        if not np.all(holds):
            wrong = np.extract(~np.asarray(holds), x)[:5].tolist()
            self.fail(f"expected all elements to be {condition}; received {wrong}")

    # --- shapes, dtypes, lengths and errors -------------------------------------------

    def assertShapeEqual(
        self, input_a: Any, input_b: Any, msg: str | None = None
    ) -> None:
        """Raise unless the shapes are equal."""
        self.assertEqual(tuple(np.shape(input_a)), tuple(np.shape(input_b)), msg)

    def assertDTypeEqual(self, target: Any, expected_dtype: DTypeLike) -> None:
        """Raise unless the dtype is equal."""
        name = getattr(expected_dtype, "name", expected_dtype)
        self.assertEqual(np.asarray(target).dtype, np.dtype(name))

    def assertLen(
        self, container: Any, expected_len: int, msg: str | None = None
    ) -> None:
        """Raise unless the container has this length."""
        self.assertEqual(len(container), expected_len, msg)

    def assertEmpty(self, container: Any, msg: str | None = None) -> None:
        """Raise unless the container is empty."""
        self.assertEqual(len(container), 0, msg)

    def assertNotEmpty(self, container: Any, msg: str | None = None) -> None:
        """Raise if the container is empty."""
        self.assertNotEqual(len(container), 0, msg)

    def assertRaisesOpError(self, expected_err_re_or_predicate: str) -> Any:
        """Return a context that requires an error with a matching message."""
        manager: AbstractContextManager[Any] = self.assertRaisesRegex(
            Exception, expected_err_re_or_predicate
        )
        return manager


def _as_nest(x: TensorLike) -> Any:
    """Convert tensors in a nest to arrays; a list of numbers is an array, too."""
    if isinstance(x, dict):
        return {key: _as_nest(value) for key, value in x.items()}
    if isinstance(x, (list, tuple)) and any(map(_is_nest_item, x)):
        return [_as_nest(value) for value in x]
    return np.asarray(x)


def _is_nest_item(x: TensorLike) -> bool:
    """Return whether an item makes a list a nest: a tensor, array with axes, or
    dict."""
    return isinstance(x, dict) or bool(hasattr(x, "shape") and len(x.shape))


def _widen(x: TensorLike) -> Any:
    """Convert 16-bit floats to float32."""

    def widened(leaf: Any) -> Array:
        array = np.asarray(leaf)
        return array.astype("float32") if array.dtype.name in _NARROW else array

    return tree.map_structure(widened, x)


def main(argv: Any = None) -> None:
    """Run the tests of the main program, as `unittest.main`."""
    unittest.main(argv=argv)


def gpu_device_name() -> str:
    """Return "/device:GPU:0", or "" without a GPU."""
    return "/device:GPU:0" if list_physical_devices("GPU") else ""


def is_gpu_available(
    cuda_only: bool = False, min_cuda_compute_capability: object = None
) -> bool:
    """Return whether there is a GPU.

    `cuda_only` and `min_cuda_compute_capability` have no effect: it is an NVIDIA GPU
    that toolkit supports.
    """
    return bool(list_physical_devices("GPU"))


def is_built_with_cuda() -> bool:
    """Return whether there is an NVIDIA GPU."""
    return is_gpu_available()


def is_built_with_gpu_support() -> bool:
    """Return whether there is a GPU."""
    return is_gpu_available()
