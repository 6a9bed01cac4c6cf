"""Test TensorFlow Serving's REST API with raw requests."""

import numpy as np
import pytest

from tests.serving.serve import ask, rows

PREDICT = "/v1/models/mlp:predict"
PAIR = "/v1/models/two%20words:predict"


def test_status(server):
    assert ask(server, "GET", "/v1/models/mlp").json == {
        "model_version_status": [
            {
                "version": "1",
                "state": "AVAILABLE",
                "status": {"error_code": "OK", "error_message": ""},
            }
        ]
    }
    assert ask(server, "GET", "/v1/models/mlp/versions/1").status == 200


def test_metadata(server):
    metadata = ask(server, "GET", "/v1/models/two%20words/metadata").json
    assert metadata["model_spec"]["name"] == "two words"
    signature = metadata["metadata"]["signature_def"]["signature_def"][
        "serving_default"
    ]
    assert signature["method_name"] == "tensorflow/serving/predict"
    assert signature["inputs"]["b"]["dtype"] == "DT_INT32"
    dims = [x["size"] for x in signature["inputs"]["b"]["tensor_shape"]["dim"]]
    assert dims == ["-1", "3"]


X = rows(3, 5)
A, B = rows(2, 2), np.arange(6).reshape(2, 3)


@pytest.mark.parametrize(
    "body, key",
    [
        ({"instances": X.tolist()}, "predictions"),
        ({"instances": [{"x": x} for x in X.tolist()]}, "predictions"),
        ({"inputs": X.tolist()}, "outputs"),
        ({"inputs": {"x": X.tolist()}}, "outputs"),
        (
            {"signature_name": "serving_default", "instances": X.tolist()},
            "predictions",
        ),
    ],
)
@pytest.mark.parametrize("path", [PREDICT, "/v1/models/mlp/versions/1:predict"])
def test_one_tensor(server, model, body, key, path):
    answer = ask(server, "POST", path, body)
    assert answer.status == 200 and list(answer.json) == [key]
    expected = model.predict(X, verbose=0)
    np.testing.assert_allclose(answer.json[key], expected, rtol=1e-6)


def test_several_tensors_by_rows(server):
    instances = [{"a": a, "b": b} for a, b in zip(A.tolist(), B.tolist(), strict=True)]
    predictions = ask(server, "POST", PAIR, {"instances": instances}).json[
        "predictions"
    ]
    assert [row["codes"] for row in predictions] == (B * 2).tolist()
    assert [len(row["total"]) for row in predictions] == [2, 2]


def test_several_tensors_by_columns(server):
    body = {"inputs": {"a": A.tolist(), "b": B.tolist()}}
    outputs = ask(server, "POST", PAIR, body).json["outputs"]
    assert outputs["codes"] == (B * 2).tolist()
    assert np.shape(outputs["total"]) == (2, 2)


@pytest.mark.parametrize(
    "instances",
    [
        ["green", "blue", "red"],
        [{"b64": "Z3JlZW4="}, "blue", "red"],
        [{"word": "green"}, {"word": "blue"}, {"word": {"b64": "cmVk"}}],
    ],
)
def test_texts(server, instances):
    answer = ask(server, "POST", "/v1/models/words:predict", {"instances": instances})
    assert answer.json == {"predictions": [2, 0, 1]}


@pytest.mark.parametrize(
    "path, body, status, words",
    [
        (PREDICT, {}, 400, "expected either 'instances' or 'inputs'"),
        (
            PREDICT,
            {"instances": [], "inputs": []},
            400,
            "expected either 'instances' or 'inputs'",
        ),
        (PREDICT, {"instances": []}, 400, "expected a list of rows"),
        (PREDICT, {"instances": 3}, 400, "expected a list of rows"),
        (PREDICT, {"instances": [[1, 2]]}, 400, "expected shape [-1, 5]"),
        (PREDICT, {"instances": [1, 2]}, 400, "expected shape [-1, 5]"),
        (PREDICT, {"instances": [["a"] * 5]}, 400, "expected FP32 values"),
        (PREDICT, {"instances": [{"z": [0] * 5}]}, 400, "expected ['x']"),
        (PREDICT, {"inputs": {"z": 3}}, 400, "expected ['x']"),
        (PREDICT, {"inputs": []}, 400, "expected shape [-1, 5]"),
        (PREDICT, {"signature_name": "f", "inputs": 0}, 404, "'serving_default'"),
        (PAIR, {"instances": [[1, 2]]}, 400, "expected objects with ['a', 'b']"),
        (PAIR, {"inputs": [[1, 2]]}, 400, "expected an object with ['a', 'b']"),
        (
            PAIR,
            {"inputs": {"a": [[0, 0]], "b": [[0, 0, 0]] * 2}},
            400,
            "equal extents of the first axes; received [1, 2]",
        ),
        (
            PAIR,
            {"inputs": {"a": [[0, 0]], "b": [[0, 0, 2**31]]}},
            400,
            "expected INT32 values",
        ),
        (
            PAIR,
            {"inputs": {"a": [[0, 0]], "b": [[0, 0, 0.5]]}},
            400,
            "expected INT32 values",
        ),
        (
            "/v1/models/words:predict",
            {"instances": [{"b64": "?"}]},
            400,
            "expected UTF-8 in b64",
        ),
        ("/v1/models/words:predict", {"instances": [3]}, 400, "BYTES values"),
        ("/v1/models/words:predict", {"instances": ["\ud800"]}, 400, "BYTES values"),
        ("/v1/models/mlp:classify", {}, 404, "no such path"),
    ],
)
def test_invalid_requests_are_refused(server, path, body, status, words):
    answer = ask(server, "POST", path, body)
    assert (answer.status, list(answer.json)) == (status, ["error"])
    assert words in answer.json["error"]


def test_texts_in_binary_form(server):
    words = [x.encode() for x in ("green", "", "red")]
    data = b"".join(len(x).to_bytes(4, "little") + x for x in words)
    spec = '{"name":"word","shape":[3],"datatype":"BYTES",'
    spec += f'"parameters":{{"binary_data_size":{len(data)}}}}}'
    head = f'{{"inputs":[{spec}]}}'.encode()
    length = {"Inference_Header_Content_Length": len(head)}
    path = "/v2/models/words/infer"
    answer = ask(server, "POST", path, head + data, **length)
    assert answer.json["outputs"][0]["data"] == [2, 0, 1]
    for wrong in (data[:-1] + b"\xff", b"\xff" * len(data), bytes(len(data))):
        answer = ask(server, "POST", path, head + wrong, **length)
        assert answer.status == 400
