#!/usr/bin/env python3
"""Run the backend tests of ONNX that need no download.

    python -m tests.models.importing.backend_suite [PATTERN] [--list]

Prints the number of cases that pass, are close, are wrong, are refused and crash, and
the causes of the refusals by count. Close results are beyond the tolerance of the case,
but within two rounding steps of the largest element: the expected results are rounded,
too. With --list, prints each case that does not pass.
"""

import argparse
import functools
import re
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper

import toolkit as tk
from toolkit import dtypes
from toolkit.errors import ToolkitError

DATA_KINDS = ("simple", "pytorch-operator", "pytorch-converted")


class Case(NamedTuple):
    """A model in bytes, data sets of (inputs, outputs), and the tolerances."""

    model: bytes
    data_sets: list
    rtol: float
    atol: float


class Outcome(NamedTuple):
    """The outcome "pass", "wrong", "refused" or "crash", and the reason."""

    kind: str
    reason: str = ""


@functools.cache
def load_cases():
    """Return the cases by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases
        from onnx.backend.test.loader import load_model_tests

        nodes = collect_testcases(None)
        models = [case for kind in DATA_KINDS for case in load_model_tests(kind=kind)]
    cases = {
        case.name: Case(
            case.model.SerializeToString(), case.data_sets, case.rtol, case.atol
        )
        for case in nodes
    }
    for case in models:
        folder = Path(case.model_dir)
        sets = [_load_data_set(path) for path in sorted(folder.glob("test_data_set_*"))]
        model = (folder / "model.onnx").read_bytes()
        cases[case.name] = Case(model, sets, case.rtol, case.atol)
    return cases


def _load_data_set(folder):
    return tuple(
        [
            (folder / f"{direction}_{i}.pb").read_bytes()
            for i in range(len(list(folder.glob(f"{direction}_*.pb"))))
        ]
        for direction in ("input", "output")
    )


def run_case(case, folder):
    """Return the Outcome of a case."""
    try:
        problem = _find_difference(case, folder)
    except ToolkitError as error:
        return Outcome("refused", str(error).splitlines()[0])
    except Exception as error:  # any other error is a fault of the importer
        return Outcome("crash", f"{type(error).__name__}: {error}")
    return problem or Outcome("pass")


def _find_difference(case, folder):
    """Return the first difference between the actual and the expected results."""
    path = Path(folder) / "model.onnx"
    path.write_bytes(case.model)
    graph = onnx.load_from_string(case.model).graph
    loaded = tk.saving.load_onnx(path)
    arrays = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in arrays]
    for case_inputs, expected in case.data_sets:
        values = [_value(x, info) for x, info in zip(case_inputs, inputs, strict=False)]
        outputs = loaded(values if len(values) != 1 else values[0])
        outputs = outputs if len(graph.output) > 1 else [outputs]
        expected_values = [
            _value(y, v) for y, v in zip(expected, graph.output, strict=True)
        ]
        for y, expected_value in zip(outputs, expected_values, strict=True):
            problem = compare(y, expected_value, case.rtol, case.atol)
            if problem:
                return problem
    return None


_PARSED = {
    "tensor_type": (onnx.TensorProto, numpy_helper.to_array),
    "sequence_type": (onnx.SequenceProto, numpy_helper.to_list),
    "optional_type": (onnx.OptionalProto, numpy_helper.to_optional),
}


def _value(value, info):
    """Return a message, its bytes or plain values as arrays, lists and None."""
    message, parse = _PARSED[info.type.WhichOneof("value")]
    if isinstance(value, bytes):
        value = message.FromString(value)
    for kind, convert in _PARSED.values():
        if isinstance(value, kind):
            return convert(value)
    return value


def compare(actual, expected, rtol, atol):
    """Return the Outcome for two values that differ, or None."""
    if isinstance(expected, (list, tuple)):
        if not isinstance(actual, (list, tuple)) or len(actual) != len(expected):
            return _wrong(f"a sequence: {actual!r:.60}, expected {expected!r:.60}")
        pairs = zip(actual, expected, strict=True)
        return next(filter(None, (compare(*p, rtol, atol) for p in pairs)), None)
    if expected is None or actual is None:
        is_same = actual is expected
        return None if is_same else _wrong(f"{actual!r:.60}, expected {expected!r:.60}")
    actual, expected = np.asarray(actual), np.asarray(expected)
    is_text = expected.dtype.kind in "OUS"
    if not is_text and actual.dtype != expected.dtype:
        return _wrong(f"dtype {actual.dtype}, expected {expected.dtype}")
    if actual.shape != expected.shape:
        return _wrong(f"shape {actual.shape}, expected {expected.shape}")
    if is_text:
        is_same = actual.tolist() == expected.tolist()
        return None if is_same else _wrong("strings differ")
    return _compare_numbers(actual, expected, rtol, atol)


def _compare_numbers(actual, expected, rtol, atol):
    kind = "complex128" if expected.dtype.kind == "c" else "float64"
    x, y = actual.astype(kind), expected.astype(kind)
    close = np.isclose(x, y, rtol, atol, equal_nan=True)
    if np.all(close):
        return None
    first = np.argwhere(~np.atleast_1d(close))[0]
    at = tuple(map(int, first)) if actual.ndim else ()
    problem = f"value {actual[at]} at {at}, expected {expected[at]}"
    if dtypes.is_float(str(expected.dtype)):
        step = (
            2
            * float(_info(expected.dtype).eps)
            * np.abs(y[np.isfinite(y)]).max(initial=0)
        )
        if np.all(np.isclose(x, y, rtol, max(atol, step), equal_nan=True)):
            return Outcome("close", problem)
    return _wrong(problem)


def _info(dtype):
    return ml_dtypes.finfo(dtype) if dtype == ml_dtypes.bfloat16 else np.finfo(dtype)


def _wrong(problem):
    return Outcome("wrong", problem)


def _cause(reason):
    """Return the reason without names and numbers."""
    reason = re.sub(r"^'[^']*': ", "", reason)
    reason = re.sub(r"the node '[^']*'", "the node", reason)
    return re.sub(r"\d+", "N", reason)[:150]


def main():
    """Run the cases whose names match."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--list", action="store_true", help="print each failure")
    arguments = parser.parse_args()
    counts, causes = Counter(), Counter()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, case in load_cases().items():
            if not re.search(arguments.pattern, name):
                continue
            outcome = run_case(case, folder)
            counts[outcome.kind] += 1
            if outcome.kind != "pass":
                causes[f"{outcome.kind}: {_cause(outcome.reason)}"] += 1
                if arguments.list:
                    print(f"{outcome.kind} {name}: {outcome.reason}", flush=True)
    for cause, count in causes.most_common():
        print(f"{count:5} {cause}")
    print(dict(counts), "of", sum(counts.values()))


if __name__ == "__main__":
    main()
