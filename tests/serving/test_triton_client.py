"""Test with NVIDIA's tritonclient, which was written for other servers."""

from contextlib import closing

import numpy as np
import pytest

from tests.serving.serve import rows

http = pytest.importorskip("tritonclient.http")


@pytest.fixture(scope="module")
def client(server):
    with closing(http.InferenceServerClient(f"{server.host}:{server.port}")) as client:
        yield client


def input_of(name, array, is_binary):
    entry = http.InferInput(
        name, array.shape, {"f": "FP32", "i": "INT32"}[array.dtype.kind]
    )
    entry.set_data_from_numpy(array, binary_data=is_binary)
    return entry


def test_health_and_metadata(client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("mlp") and client.is_model_ready("mlp", "1")
    assert not client.is_model_ready("other")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    (entry,) = client.get_model_metadata("mlp")["inputs"]
    assert entry == {"name": "x", "datatype": "FP32", "shape": [-1, 5]}


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize("received", [True, False, None])
@pytest.mark.parametrize("count", [1, 3, 50])
def test_inference(client, model, sent, received, count):
    x = rows(count, 5)
    outputs = None
    if received is not None:
        outputs = [http.InferRequestedOutput("y", binary_data=received)]
    result = client.infer(
        "mlp", [input_of("x", x, sent)], outputs=outputs, request_id="7"
    )
    expected = model.predict(x, verbose=0)
    np.testing.assert_allclose(result.as_numpy("y"), expected, rtol=1e-5)
    assert result.get_response()["id"] == "7"


def test_several_tensors_in_one_request(client):
    a, b = rows(2, 2), np.arange(6, dtype="int32").reshape(2, 3)
    waiting = [
        client.async_infer(
            "two words", [input_of("b", b, True), input_of("a", a, False)]
        )
        for _ in range(8)
    ]
    for one in waiting:
        np.testing.assert_array_equal(one.get_result().as_numpy("codes"), b * 2)


def test_errors(client):
    with pytest.raises(Exception, match="expected shape"):
        client.infer("mlp", [input_of("x", rows(1, 4), True)])
    with pytest.raises(Exception, match="there is no such"):
        client.infer("other", [input_of("x", rows(1, 5), True)])
    with pytest.raises(Exception, match="in time"):
        client.infer("mlp", [input_of("x", rows(1, 5), True)], timeout=1)
