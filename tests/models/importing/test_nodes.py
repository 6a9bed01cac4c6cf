"""Run the backend tests of ONNX, also compiled with constants for shapes."""

import re
import warnings
from functools import cache

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import toolkit as tk
from tests.models.importing.backend_suite import compare, load_cases, run_case
from toolkit.models.importing.operators import OPERATORS

NUM_GROUPS = 32
# Cases that are refused: a pattern of names -> a pattern of the message.
REFUSED = {
    r"(?i)_(U?INT[24]|FLOAT4E2M1|FLOAT8E\dM\dFNUZ)(_|$)": "one of the dtypes",
    r"(?i)cast_e8m0_": "one of the dtypes",
    r"^test_(string|strnorm|regex|equal_string)": "string|ONNX type 8",
    r"^test_ai_onnx_ml_": "expected one opset|string_data",
    r"^test_(adagrad|adam|momentum|nesterov)": "expected one opset",
    r"^test_flex_?attention(?!.*expanded)": "ai.onnx.preview",
    r"^test_gradient_": "preview.training",
    r"^test_training_dropout(?!_zero)": "drops elements",
    r"^test_bernoulli": "random numbers",
    r"^test_image_decoder": "unsupported operator 'ImageDecoder'",
    r"^test_tfidf": "unsupported operator 'TfIdfVectorizer'",
    r"^test_not_[234]d$": "opset 1",
    r"^test_scan_sum$": "opset 8",
    r"^test_(sequence_map|sequence_insert|split_to_sequence)": "is sequence",
    r"^test_optional_get_element_(optional|sequence)": "is (sequence|optional)",
    r"^test_optional_has_element_(tensor|optional|empty_opt)": "is optional",
    r"^test_(identity|loop\d*|if)_(opt|seq)": "is sequence|is optional|type_proto",
    r"^test_resize_downsample_scales_.*_align_corners$": "with fractional products",
}
# Cases whose expected results have rounded intermediate values.
CLOSE = r"^test_(attention_.*(causal|padded_kv)_bf16|dft)"


def reason_to_refuse(name):
    return next(
        (reason for text, reason in REFUSED.items() if re.search(text, name)), None
    )


def names_of(group):
    return sorted(load_cases())[group::NUM_GROUPS]


@pytest.mark.one_in(8)
@pytest.mark.parametrize("group", range(NUM_GROUPS))
def test_cases(group, tmp_path):
    problems = []
    for name in names_of(group):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*runs node by node")
            outcome = run_case(load_cases()[name], tmp_path)
        reason = reason_to_refuse(name)
        allowed = {"refused"} if reason else {"pass"}
        allowed |= {"close"} if re.search(CLOSE, name) else set()
        if outcome.kind not in allowed or (
            reason and not re.search(reason, outcome.reason)
        ):
            problems.append(f"{outcome.kind} {name}: {outcome.reason}")
    assert not problems, "\n".join(problems)


def test_number_of_cases():
    names = list(load_cases())
    passing = [name for name in names if reason_to_refuse(name) is None]
    assert len(passing) >= 1_750
    for text in (*REFUSED, CLOSE):
        assert any(re.search(text, name) for name in names), text


# --- compiled -------------------------------------------------------------------------


def _array(value):
    is_message = isinstance(value, onnx.TensorProto)
    return numpy_helper.to_array(value) if is_message else np.asarray(value)


def _host_inputs(graph, required=()):
    """Return the names of the values that must be known before the graph runs."""
    needed = set(required)
    for node in reversed(graph.node):
        operator = OPERATORS[node.op_type]
        needed.update(node.input[i] for i in operator.host if i < len(node.input))
        is_needed = operator.needs_data and needed & set(node.output)
        if is_needed:
            needed.update(node.input)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                outputs = [value.name for value in attribute.g.output]
                needed |= _host_inputs(attribute.g, outputs if is_needed else ())
    return needed


def with_constants(case):
    """Return the model with such inputs as initializers, and the other inputs."""
    model = onnx.load_from_string(case.model)
    graph, (inputs, _) = model.graph, case.data_sets[0]
    host_inputs = _host_inputs(graph)
    graph_inputs = []
    for value, x in zip(list(graph.input), inputs, strict=True):
        if value.name in host_inputs:
            graph.initializer.append(numpy_helper.from_array(_array(x), value.name))
            graph.input.remove(value)
        else:
            graph_inputs.append(_array(x))
    return model, graph_inputs


def _operators_of(graph):
    graphs = [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    operators = {node.op_type for node in graph.node}
    return operators.union(*map(_operators_of, graphs))


@cache
def compiled_names():
    """Return the names of the cases of operators that can be compiled."""
    names = []
    for name, case in load_cases().items():
        graph = onnx.load_from_string(case.model).graph
        is_known = _operators_of(graph) <= OPERATORS.keys()
        is_plain = len(graph.input) == len(case.data_sets[0][0])
        messages = all(not isinstance(x, bytes) for x in case.data_sets[0][0])
        if is_known and is_plain and messages and not reason_to_refuse(name):
            names.append(name)
    return names


@pytest.mark.one_in(8)
@pytest.mark.parametrize("group", range(NUM_GROUPS))
def test_compiled(group, tmp_path):
    problems = []
    for name in compiled_names()[group::NUM_GROUPS]:
        problem = _problem_of_compiled(load_cases()[name], tmp_path / "model.onnx")
        if problem and not (problem.kind == "close" and re.search(CLOSE, name)):
            problems.append(f"{name}: {problem}")
    assert not problems, "\n".join(problems)


def _problem_of_compiled(case, path):
    model, inputs = with_constants(case)
    path.write_bytes(model.SerializeToString())
    loaded = tk.saving.load_onnx(path)
    if not loaded.supports_jit:
        return None
    outputs = tk.function(loaded)(inputs if len(inputs) != 1 else inputs[0])
    outputs = outputs if isinstance(outputs, list) else [outputs]
    pairs = zip(outputs, map(_array, case.data_sets[0][1]), strict=True)
    # A compiled sum has another order of additions.
    problems = (
        compare(y, expected, case.rtol, max(case.atol, 1e-6)) for y, expected in pairs
    )
    return next(filter(None, problems), None)


def test_every_operator_has_a_case():
    tested = {
        node.op_type
        for name, case in load_cases().items()
        if reason_to_refuse(name) is None
        for node in onnx.load_from_string(case.model).graph.node
    }
    operators = {name for name in OPERATORS if "." not in name}
    # These have cases in test_operators.py and test_sequences.py.
    assert operators - tested == {"GlobalLpPool", "Optional", "SequenceMap"}
