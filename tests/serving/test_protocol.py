"""Test the Open Inference Protocol with raw requests."""

import json
import tracemalloc
from contextlib import closing

import numpy as np
import pytest

from tests.serving.gated import Gated
from tests.serving.serve import (
    Client,
    ask,
    binary,
    binary_output,
    binary_request,
    rows,
    serving,
    tensor,
)
from toolkit import dtypes
from toolkit.errors import ArgumentError
from toolkit.serving import (
    App,
    Batching,
    Limits,
    Servable,
    Server,
    Service,
    TensorSpec,
    protocol,
)
from toolkit.serving.messages import RequestError
from toolkit.serving.tensors import from_values

INFER = "/v2/models/mlp/infer"


@pytest.mark.parametrize(
    "path, expected",
    [
        ("/v2/health/live", {"live": True}),
        ("/v2/health/ready", {"ready": True}),
        ("/v2/models/mlp/ready", {"name": "mlp", "ready": True}),
        ("/v2/models/mlp/versions/1/ready", {"name": "mlp", "ready": True}),
    ],
)
def test_health(server, path, expected):
    answer = ask(server, "GET", path)
    assert (answer.status, answer.json) == (200, expected)
    head = ask(server, "HEAD", path)
    assert head.status == 200 and head.body == b""
    assert head.headers["content-length"] == str(len(answer.body))


def test_metadata_of_the_server(server):
    metadata = ask(server, "GET", "/v2").json
    assert metadata["name"] == "toolkit" and metadata["version"]
    assert metadata["extensions"] == ["binary_tensor_data"]
    assert ask(server, "GET", "/v2/").json == metadata


@pytest.mark.parametrize("end", ["", "/", "/versions/1", "?x=1"])
def test_metadata_of_a_model(server, end):
    assert ask(server, "GET", f"/v2/models/mlp{end}").json == {
        "name": "mlp",
        "versions": ["1"],
        "platform": "toolkit_model",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 5]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}],
    }


def test_name_with_escapes(server):
    metadata = ask(server, "GET", "/v2/models/two%20words").json
    assert [(x["name"], x["datatype"]) for x in metadata["inputs"]] == [
        ("a", "FP32"),
        ("b", "INT32"),
    ]


@pytest.mark.parametrize("count", [1, 3, 32, 100])
@pytest.mark.parametrize("is_nested", [False, True])
def test_json(server, model, count, is_nested):
    x = rows(count, 5)
    entry = tensor("x", x)
    if is_nested:
        entry["data"] = x.tolist()
    answer = ask(server, "POST", INFER, {"id": "a7", "inputs": [entry]})
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    (output,) = answer.json["outputs"]
    assert answer.json["id"] == "a7"
    assert answer.json["model_name"] == "mlp" and answer.json["model_version"] == "1"
    assert (output["name"], output["datatype"]) == ("y", "FP32")
    actual = np.array(output["data"], "float32").reshape(output["shape"])
    np.testing.assert_allclose(actual, model.predict(x, verbose=0), rtol=1e-6)


@pytest.mark.parametrize("count", [1, 3, 32, 100])
def test_binary(server, model, count):
    x = rows(count, 5)
    client = Client(server)
    for _ in range(2):  # the second request finds the words in the cache
        client.send(binary_request(x))
        answer = client.read()
        assert answer.headers["content-type"] == "application/octet-stream"
        actual = binary_output(answer)
        np.testing.assert_allclose(actual, model.predict(x, verbose=0), rtol=1e-6)
    client.close()


@pytest.mark.parametrize(
    "parameters, outputs, in_binary",
    [
        ({}, None, []),
        ({"binary_data_output": True}, None, ["total", "codes"]),
        ({}, [{"name": "codes", "parameters": {"binary_data": True}}], ["codes"]),
        ({"binary_data_output": True}, [{"name": "total"}], ["total"]),
        (
            {"binary_data_output": True},
            [
                {"name": "codes"},
                {"name": "total", "parameters": {"binary_data": False}},
            ],
            ["codes"],
        ),
    ],
)
def test_several_tensors_in_both_forms(server, pair, parameters, outputs, in_binary):
    a, b = rows(2, 2), np.arange(6, dtype="int32").reshape(2, 3)
    spec = tensor("a", a, parameters={"binary_data_size": a.nbytes})
    del spec["data"]
    words = {"inputs": [tensor("b", b), spec], "parameters": parameters}
    if outputs:
        words["outputs"] = outputs
    body, length = binary(words, a)
    path = "/v2/models/two%20words/infer"
    answer = ask(server, "POST", path, body, Inference_Header_Content_Length=length)
    assert answer.status == 200, answer.body
    length = int(answer.headers.get("inference-header-content-length", -1))
    assert (length >= 0) == bool(in_binary)
    head = json.loads(answer.body[:length] if in_binary else answer.body)
    names = [x["name"] for x in outputs] if outputs else ["total", "codes"]
    assert {x["name"] for x in head["outputs"]} == set(names)
    expected = pair.predict({"a": a, "b": b}, verbose=0)
    at, dtypes = length, {"total": "float32", "codes": "int32"}
    for output in head["outputs"]:
        name = output["name"]
        if name in in_binary:
            size = output["parameters"]["binary_data_size"]
            actual = np.frombuffer(answer.body[at : at + size], dtypes[name])
            at += size
        else:
            actual = np.array(output["data"], dtypes[name])
        actual = actual.reshape(output["shape"])
        np.testing.assert_allclose(actual, expected[name], rtol=1e-5)
    assert not in_binary or at == len(answer.body)


X = tensor("x", rows(2, 5))


def changed(**changes):
    return {"inputs": [{**X, **changes}]}


BAD = {
    "no JSON": (b"{", "not valid JSON"),
    "no object": ([1], "expected a JSON object"),
    "no inputs": ({}, "inputs: expected a list"),
    "inputs of another type": ({"inputs": 3}, "inputs: expected a list"),
    "an input of another type": ({"inputs": [3]}, "expected each of ['x'] once"),
    "none of the inputs": ({"inputs": []}, "input 'x' is missing"),
    "an unknown input": (changed(name="z"), "expected each of ['x'] once"),
    "an input twice": ({"inputs": [X, X]}, "expected each of ['x'] once"),
    "another datatype": (changed(datatype="FP64"), "expected datatype 'FP32'"),
    "no datatype": (changed(datatype=None), "expected datatype 'FP32'"),
    "too few axes": (changed(shape=[10]), "expected shape [-1, 5]"),
    "too many axes": (changed(shape=[2, 5, 1]), "expected shape [-1, 5]"),
    "another extent": (changed(shape=[1, 10]), "expected shape [-1, 5]"),
    "no rows": (changed(shape=[0, 5], data=[]), "expected shape [-1, 5]"),
    "negative rows": (changed(shape=[-2, 5]), "expected shape [-1, 5]"),
    "an extent that is true": (changed(shape=[True, 5]), "shape of integers"),
    "an extent of 1.0": (changed(shape=[1.0, 5]), "shape of integers"),
    "huge rows": (changed(shape=[10**18, 5]), "expected values for shape"),
    "a shape of text": (changed(shape="25"), "shape of integers"),
    "too few values": (changed(data=[1.0]), "expected values for shape [2, 5]"),
    "other lists": (
        changed(data=[[1.0] * 2] * 5),
        "expected values for shape [2, 5]",
    ),
    "ragged lists": (changed(data=[[1.0], [1.0, 2.0]]), "in regular lists"),
    "texts": (changed(data=["1"] * 10), "expected FP32 values"),
    "nothing": (changed(data=[None] * 10), "expected FP32 values"),
    "objects": (changed(data=[{}] * 10), "expected FP32 values"),
    "truths": (changed(data=[True] * 10), "expected FP32 values"),
    "no data": (changed(data=None), "expected a list as data"),
    "binary without a length": (
        changed(parameters={"binary_data_size": 40}),
        "needs the header Inference-Header-Content-Length",
    ),
    "an unknown output": (
        {"inputs": [X], "outputs": [{"name": "z"}]},
        "outputs: expected names among ['y']",
    ),
    "an output twice": (
        {"inputs": [X], "outputs": [{"name": "y"}] * 2},
        "expected each name once",
    ),
    "classes": (
        {
            "inputs": [X],
            "outputs": [{"name": "y", "parameters": {"classification": 2}}],
        },
        "class labels are unsupported",
    ),
    "a sequence": (
        {"inputs": [X], "parameters": {"sequence_id": 3}},
        "models do not support sequences",
    ),
    "shared memory": (
        changed(parameters={"shared_memory_region": "/etc/passwd"}),
        "shared memory is unsupported",
    ),
    "parameters of another type": (changed(parameters=3), "expected an object"),
    "a timeout of text": (
        {"inputs": [X], "parameters": {"timeout": "1"}},
        "expected microseconds",
    ),
    "an id of another type": ({"id": 3, "inputs": [X]}, "id: expected a string"),
    "an extent beyond all numbers": (changed(shape=[10**30, 5]), "of integers"),
    "an extent of many digits": (
        b'{"inputs":[{"name":"x","datatype":"FP32","shape":[%s,5],"data":[]}]}'
        % (b"9" * 4299),
        "shape of integers",
    ),
    "truths among numbers": (changed(data=[True] + [1.0] * 9), "expected FP32 values"),
    "a text among numbers": (
        changed(data=["1" * 9999] + [1] * 9999),
        "expected FP32 values",
    ),
    "a number that no float is near to": (
        changed(data=[10**400] + [1] * 9),
        "expected FP32 values",
    ),
    "lists beside numbers": (changed(data=[[1.0], 1.0]), "in regular lists"),
    "a flag of text": (
        {"inputs": [X], "parameters": {"binary_data_output": "no"}},
        "expected true or false",
    ),
    "a flag of an output": (
        {
            "inputs": [X],
            "outputs": [{"name": "y", "parameters": {"binary_data": 1}}],
        },
        "expected true or false",
    ),
    "deep lists": (b'{"inputs":' + b"[" * 9 + b"]" * 9 + b"}", "more than 8 levels"),
    "very deep lists": (b"[" * 10**6, "more than 8 levels"),
    "a long number": (b'{"inputs":[' + b"1" * 10**5 + b"]}", "not valid JSON"),
    "no UTF-8": (b'{"\xff":1}', "not valid JSON"),
}


def test_errors_quote_little_of_the_request(server):
    for changes in (
        {"name": "x" * 10**6},
        {"shape": [1] * 10**6},
        {"datatype": "a" * 999},
        {"datatype": {"a" * 10**5: ["b" * 10**5] * 10}},
    ):
        answer = ask(server, "POST", INFER, changed(**changes))
        assert answer.status == 400 and len(answer.body) < 300


@pytest.mark.parametrize("name", BAD)
def test_invalid_requests_are_refused(server, name):
    body, words = BAD[name]
    answer = ask(server, "POST", INFER, body)
    assert answer.status == 400
    assert list(answer.json) == ["error"] and words in answer.json["error"]
    assert ask(server, "POST", INFER, {"inputs": [X]}).status == 200


@pytest.mark.parametrize(
    "size, extra, length, words",
    [
        (36, b"", None, "expected 36 bytes after the JSON; received 40"),
        (44, b"", None, "expected 44 bytes after the JSON; received 40"),
        (44, b"1234", None, "expected 40 bytes for FP32 [2, 5]; received 44"),
        (-1, b"", None, "a size >= 0"),
        ("40", b"", None, "a size >= 0"),
        (40, b"", 10**6, "longer than the body"),
        (40, b"", 3, "not valid JSON"),
    ],
)
def test_binary_tensors_have_the_size_of_their_shape(
    server, size, extra, length, words
):
    x = np.zeros((2, 5), "float32")
    spec = tensor("x", x, parameters={"binary_data_size": size})
    body, header_length = binary({"inputs": [spec]}, x)
    headers = {
        "Inference_Header_Content_Length": header_length if length is None else length
    }
    answer = ask(server, "POST", INFER, body + extra, **headers)
    assert answer.status == 400 and words in answer.json["error"]


def test_brackets_in_texts_are_no_nesting(server):
    words = {"id": '[[[[[[[[[["[[[[{{{{', "inputs": [X]}
    answer = ask(server, "POST", INFER, words)
    assert answer.status == 200 and answer.json["id"] == words["id"]


@pytest.mark.parametrize(
    "method, path, status",
    [
        ("GET", "/", 404),
        ("GET", "/v2/models/other", 404),
        ("GET", "/v2/models/mlp/versions/2", 404),
        ("POST", "/v2/models/mlp/versions/2/infer", 404),
        ("POST", "/v2/repository/models/mlp/load", 404),
        ("GET", "/v2/models/../mlp", 404),
        ("GET", INFER, 405),
        ("POST", "/v2", 405),
        ("DELETE", "/v2/models/mlp", 405),
    ],
)
def test_unknown_paths(server, method, path, status):
    answer = ask(server, method, path, b"")
    assert answer.status == status and list(answer.json) == ["error"]
    assert (status == 405) == ("allow" in answer.headers)


def test_zero_extents_are_refused():
    """An empty request could contain any number of rows."""
    servable = Gated(is_open=True)
    with serving({"m": servable}) as server:
        for shape in ([10**9, 0], [2**63 - 1, 0], [1, 0]):
            spec = {"name": "x", "datatype": "FP32", "shape": shape}
            request_body = {"inputs": [spec | {"data": []}]}
            answer = ask(server, "POST", "/v2/models/m/infer", request_body)
            assert answer.status == 400 and "expected shape" in answer.json["error"]
            body, length = binary(
                {"inputs": [spec | {"parameters": {"binary_data_size": 0}}]}
            )
            answer = ask(
                server,
                *("POST", "/v2/models/m/infer", body),
                Inference_Header_Content_Length=length,
            )
            assert answer.status == 400 and "expected shape" in answer.json["error"]
    assert servable.batches == []


class Texts(Servable):
    """A servable that returns its input."""

    inputs = (TensorSpec("x", dtypes.STRING, (None,)),)
    outputs = (TensorSpec("y", dtypes.STRING, (None,)),)

    def run(self, arrays):
        return [arrays[0].copy()]


def test_long_text_does_not_pad_the_other_texts():
    texts = ["a" * 150_000, *["b"] * 30_000]
    entry = {"name": "x", "datatype": "BYTES", "shape": [len(texts)], "data": texts}
    with serving({"m": Texts(sizes=(32,))}) as server:
        tracemalloc.start()
        try:
            answer = ask(server, "POST", "/v2/models/m/infer", {"inputs": [entry]})
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert answer.json["outputs"][0]["data"] == texts
        assert peak < 100 * 2**20
        entry["data"] = [*texts[:-1], 3]
        answer = ask(server, "POST", "/v2/models/m/infer", {"inputs": [entry]})
        assert answer.status == 400


@pytest.mark.parametrize(
    "dtype, values, expected",
    [
        ("uint64", [2**64 - 1, 0], True),
        ("uint64", [2**64, 0], False),
        ("uint64", [-1], False),
        ("int64", [-(2**63), 2**63 - 1], True),
        ("int64", [2**63], False),
        ("int8", [[-128], [127]], True),
        ("int8", [1.0], False),
        ("int8", [True], False),
        ("bool", [True, False], True),
        ("bool", [1], False),
        ("float32", [1, 2.5, 10**300], True),
        ("float64", [float("inf")], True),
        (dtypes.STRING, ["\ud800"], False),
        (dtypes.STRING, ["", "b\0"], True),
        (dtypes.STRING, [["a"], "a"], False),
        (dtypes.STRING, [{}], False),
        ("float32", [[1], [1, 2]], False),
        ("float32", [[], []], True),
    ],
)
def test_values_in_json(dtype, values, expected):
    spec = TensorSpec("x", dtype, (None,))
    if not expected:
        with pytest.raises(RequestError, match="in regular lists"):
            from_values(spec, values)
        return
    array = from_values(spec, values)
    if dtype == dtypes.STRING:
        assert array.dtype == object and array.tolist() == values
    else:
        with np.errstate(over="ignore"):
            expected_array = np.array(values, "float64" if "float" in dtype else dtype)
            np.testing.assert_array_equal(array, expected_array.astype(dtype))
        assert array.dtype == dtype


# --- limits ---------------------------------------------------------------------------


class Wide(Servable):
    """A servable with a megabyte per row."""

    inputs = (TensorSpec("x", "float32", (None, 1)),)
    outputs = (TensorSpec("y", "float32", (None, 2**18)),)

    def __init__(self):
        super().__init__(sizes=(1,))
        self.calls = 0

    def warm(self):
        pass

    def run(self, arrays):
        self.calls += 1
        return [np.broadcast_to(arrays[0], (1, 2**18))]


class Unknown(Wide):
    outputs = (TensorSpec("y", "float32", (None, None)),)


def test_response_size_is_limited_before_the_computation():
    servable = Wide()
    with serving({"m": servable}, limits=Limits(answer=4 * 2**20)) as server:
        with closing(Client(server)) as client:
            client.send(binary_request(rows(4, 1), model="m"))
            assert client.read().status == 200
            client.send(binary_request(rows(5, 1), model="m"))
            answer = client.read()
        assert answer.status == 413 and "a response of <=" in answer.json["error"]
        body = {"inputs": [tensor("x", rows(1, 1))]}  # which is longer in JSON
        assert ask(server, "POST", "/v2/models/m/infer", body).status == 413
    assert servable.calls == 4


def test_response_of_unknown_size_is_limited_during_encoding():
    servable = Unknown()
    with serving({"m": servable}, limits=Limits(answer=4 * 2**20)) as server:
        with closing(Client(server)) as client:
            client.send(binary_request(rows(100, 1), model="m"))
            assert client.read().status == 413
    assert servable.calls == 5


def test_number_of_rows_is_limited(model):
    with serving({"mlp": model}, limits=Limits(rows=10)) as server:
        for count, status in ((10, 200), (11, 413)):
            body = {"inputs": [tensor("x", rows(count, 5))]}
            assert ask(server, "POST", INFER, body).status == status


def test_json_has_a_lower_limit_than_tensors(model):
    with serving({"mlp": model}, limits=Limits(json=1000)) as server:
        x = rows(100, 5)
        with closing(Client(server)) as client:
            client.send(binary_request(x))
            assert client.read().status == 200
        answer = ask(server, "POST", INFER, {"inputs": [tensor("x", x)]})
        assert answer.status == 413 and "of JSON" in answer.json["error"]
        words = {"inputs": [], "id": "a" * 1000}
        answer = ask(
            server,
            *("POST", INFER, json.dumps(words).encode()),
            Inference_Header_Content_Length=len(json.dumps(words)),
        )
        assert answer.status == 413


def test_internal_error_is_reported_as_a_server_error(caplog, monkeypatch, server):
    def broken(*arguments):
        raise KeyError("/secret")

    monkeypatch.setattr(protocol.RequestLayout, "arrays", broken)
    answer = ask(server, "POST", INFER, {"inputs": [X]})
    assert answer.status == 500 and "secret" not in answer.json["error"]
    assert "/secret" in caplog.text
    monkeypatch.setattr(server.service.metrics, "text", broken)
    assert ask(server, "GET", "/metrics").status == 500


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Batching(size=0), "Batching: size: expected an integer >= 1"),
        (lambda: Batching(size=1.5), "size"),
        (lambda: Batching(workers=0), "workers"),
        (lambda: Batching(queue=-1), "queue"),
        (lambda: Batching(wait=-1), "wait: expected seconds >= 0"),
        (lambda: Batching(wait=float("nan")), "wait"),
        (lambda: Batching(timeout=0), "timeout: expected seconds > 0"),
        (lambda: Batching(timeout="1"), "timeout"),
        (lambda: Limits(body=-1), "Limits: body"),
        (lambda: Limits(json=0), "json"),
        (lambda: Limits(rows=0), "rows"),
        (lambda: Limits(answer=0), "answer"),
        (lambda: Limits(held=True), "held"),
        (lambda: Limits(connections=0), "connections"),
        (lambda: Limits(read_timeout=0), "read_timeout"),
        (lambda: Limits(idle_timeout=-1), "idle_timeout"),
        (lambda: App({"m": Texts((1,))}, max_body=-1), "App: max_body"),
        (lambda: App({"m": Texts((1,))}, max_json=0), "App: max_json"),
        (lambda: App({"m": Texts((1,))}, max_rows=0), "App: max_rows"),
        (lambda: App({"m": Texts((1,))}, max_answer=0), "App: max_answer"),
        (lambda: App({"m": Texts((1,))}, watch=-1), "App: watch"),
        (
            lambda: Server(Service({"m": Texts((1,))}, Batching()), watch=-1),
            "Server: watch",
        ),
    ],
)
def test_options_are_checked(make, words):
    with pytest.raises(ArgumentError, match=words):
        make()
