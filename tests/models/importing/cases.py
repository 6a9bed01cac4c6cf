"""The cases of ONNX's own tests, as models that can be read.

In these, everything is an input of the graph, also shapes and axes. What an operator
must know before the graph runs is made a constant of the file here, as exporters do.
"""

import functools
import re
import warnings

import numpy as np
import onnx
from onnx import numpy_helper

from toolkit.models.importing.operators import OPERATORS

# Case -> why it is refused, or what of it differs.
SKIPPED = {
    r"(?i)(cast|castlike)_.*(FLOAT8|FLOAT4|U?INT[24](_|$)|e8m0)": "4 and 8-bit numbers",
    r"^test_(identity|if|loop13|loop16)_(sequence|seq|opt|seq_none)$": "sequences",
    r"^test_equal_string": "strings",
    r"^test_training_dropout": "random numbers",
    r"^test_maxpool_with_argmax_2d": "MaxPool's indices",
    r"^test_not_[234]d$": "opset 1",
    r"^test_scan_sum$": "opset 8's Scan",
    r"^test_resize_downsample_.*_antialias$": "antialias",
    # Runtimes, and the exporters that write such nodes, take the new extent.
    r"^test_resize_downsample_scales_.*_align_corners$": "extents that are not whole",
    r"^test_attention_.*(window|qk_|nonpad|padded_kv)": "windows, logits, lengths",
    r"^test_attention_.*causal_.*(fp16|bf16)": "half floats, rounded in between",
}


@functools.cache
def node_cases():
    """name -> case, of those whose operators are all known."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases = collect_testcases(None)
    return {
        case.name: case
        for case in cases
        if {node.op_type for node in case.model.graph.node} <= OPERATORS.keys()
    }


def reason_to_skip(name):
    return next((why for text, why in SKIPPED.items() if re.search(text, name)), None)


def array(value):
    is_message = isinstance(value, onnx.TensorProto)
    return numpy_helper.to_array(value) if is_message else np.asarray(value)


def host_inputs(graph, wanted=()):
    """The names of what must be known before the graph runs."""
    found = set(wanted)
    for node in reversed(graph.node):
        operator = OPERATORS[node.op_type]
        found.update(node.input[i] for i in operator.host if i < len(node.input))
        is_needed = operator.needs_data and found & set(node.output)
        if is_needed:
            found.update(node.input)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                outputs = [value.name for value in attribute.g.output]
                found |= host_inputs(attribute.g, outputs if is_needed else ())
    return found


def with_constants(model, inputs):
    """The model with such inputs as initializers, and the places of the others."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    graph = found.graph
    known = host_inputs(graph)
    names = [value.name for value in graph.input]
    kept = [i for i, name in enumerate(names) if name not in known]
    for i, name in enumerate(names):
        if name in known:
            graph.initializer.append(numpy_helper.from_array(array(inputs[i]), name))
    values = [
        onnx.ValueInfoProto.FromString(graph.input[i].SerializeToString()) for i in kept
    ]
    del graph.input[:]
    graph.input.extend(values)
    return found, kept
