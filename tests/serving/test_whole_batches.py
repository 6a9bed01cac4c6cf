"""Test models with dependent rows: no response depends on rows of other requests."""

import asyncio
import shutil
import tracemalloc
from contextlib import closing

import numpy as np
import pytest

import toolkit
from tests.serving.gated import BatcherClient, Gated, values
from tests.serving.serve import (
    Client,
    ask,
    binary_output,
    binary_request,
    mlp,
    rows,
    serving,
    tensor,
)
from toolkit import layers, ops
from toolkit.backends import get_backend
from toolkit.serving import Batching, ModelServable
from toolkit.serving.native import NativeServable

DEPENDENT = {
    "the mean": lambda x: x - ops.mean(x, axis=0),
    "softmax": lambda x: ops.exp(x) / ops.sum(ops.exp(x), axis=0),
    "the first row": lambda x: x + x[:1],
    "the last row": lambda x: x + x[-1:],
    "the other way round": lambda x: ops.flip(x, axis=0),
    "sums": lambda x: ops.cumsum(x, axis=0),
    "the number of rows": lambda x: x / ops.cast(ops.shape(x)[0], x.dtype),
    "another way for one row": lambda x: x * 2 if x.shape[0] == 1 else x * 3,
    "distances": lambda x: x * ops.sum(ops.matmul(x, ops.transpose(x)), 1)[:, None],
}


def of(compute, shape=(3,), **options):
    inputs = toolkit.Input(shape, name="x", **options)
    return toolkit.Model(inputs, layers.Lambda(compute, name="y")(inputs), name="m")


@pytest.mark.parametrize("name", DEPENDENT)
def test_each_request_is_computed_separately(name):
    xs = [rows(n, 3, seed=n) for n in (3, 5, 1, 3, 11)]
    model = of(DEPENDENT[name])
    with serving({"m": model}, Batching(size=8, wait=0.05)) as server:
        assert server.service.models["m"].batcher.servable.takes_whole_batches
        clients = [Client(server) for _ in xs]
        for x, client in zip(xs, clients, strict=True):
            client.send(binary_request(x, model="m"))
        for x, client in zip(xs, clients, strict=True):
            with closing(client):
                outputs = binary_output(client.read())
            np.testing.assert_allclose(outputs, model(x).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "make, expected",
    [
        (lambda: mlp(), False),
        (lambda: of(lambda x: ops.softmax(x, axis=-1)), False),
        (lambda: of(lambda x: x - ops.mean(x, 1, keepdims=True), (None, 2)), False),
        (lambda: of(lambda x: x - ops.mean(x, axis=0), (None, 2)), True),
        (lambda: of(lambda x: x * 2, batch_shape=(1, 3), shape=None), False),
    ],
)
def test_only_models_with_dependent_rows_are_affected(make, expected):
    assert ModelServable(make()).takes_whole_batches is expected


class Unpredictable(toolkit.Model):
    """A model that mixes rows only in `predict_step`."""

    def call(self, x):
        return x * 2

    def predict_step(self, data):
        y = super().predict_step(data)
        return y - ops.mean(y, axis=0)


def test_predict_step_is_considered():
    model = Unpredictable()
    model.build((None, 2))
    assert ModelServable(model).takes_whole_batches


def test_model_of_one_batch_size_refuses_other_sizes():
    model = of(lambda x: x - ops.mean(x, axis=0), shape=None, batch_shape=(4, 3))
    x = rows(8, 3)
    with serving({"m": model}) as server:
        for count, status in ((4, 200), (3, 400), (8, 400)):
            for path, body in (
                ("/v2/models/m/infer", {"inputs": [tensor("x", x[:count])]}),
                ("/v1/models/m:predict", {"instances": x[:count].tolist()}),
            ):
                answer = ask(server, "POST", path, body)
                assert answer.status == status, answer.body
        assert "expected 4 rows; received 8" in answer.json["error"]


def test_onnx_file(tmp_path):
    pytest.importorskip("onnx")
    model = of(DEPENDENT["the mean"])
    model.export(tmp_path / "m.onnx", verbose=False)
    x = rows(3, 3)
    with serving({"m": tmp_path / "m.onnx"}) as server:
        answer = ask(server, "POST", "/v2/models/m/infer", {"inputs": [tensor("x", x)]})
    actual = np.reshape(answer.json["outputs"][0]["data"], (3, 3))
    np.testing.assert_allclose(actual, x - x.mean(axis=0), rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(
    not get_backend("numpy").generator.can_generate or not shutil.which("cc"),
    reason="a library needs the compiler and a linker",
)
@pytest.mark.parametrize("name", ["the mean", None])
def test_native_library(tmp_path, name):
    tmp_path.chmod(0o700)
    model = of(DEPENDENT[name]) if name else of(lambda x: x * 2)
    model.export(tmp_path / "m.so", batch=(2, 4), verbose=False)
    library = toolkit.load_native(tmp_path / "m.so")
    assert library.takes_whole_batches is (name is not None)
    assert NativeServable(library).takes_whole_batches is (name is not None)
    x = rows(4, 3)
    with serving({"m": library}) as server:
        for count in (1, 2, 3, 4):
            answer = ask(
                server,
                *("POST", "/v2/models/m/infer"),
                {"inputs": [tensor("x", x[:count])]},
            )
            if name and count % 2:
                assert answer.status == 400
                assert "expected 2 or 4 rows" in answer.json["error"]
                continue
            actual = np.reshape(answer.json["outputs"][0]["data"], (count, 3))
            expected = model(x[:count]).numpy()
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_servable_may_declare_dependent_rows():
    async def run():
        servable = Gated(sizes=(4,))
        servable.takes_whole_batches = True
        client = BatcherClient(servable)
        futures = [client.ask(1), client.ask(2, 3), client.ask(*range(9))]
        servable.gate.set()
        assert [len(values(await x)) for x in futures] == [1, 2, 9]
        assert [len(x) for x in servable.batches] == [1, 2, 9]
        await client.batcher.close()

    asyncio.run(run())


def test_long_texts_do_not_pad_other_requests():
    inputs = toolkit.Input((), dtype="string", name="x")
    words = layers.TextVectorization(vocabulary=["a"], output_sequence_length=2)
    with serving({"m": toolkit.Model(inputs, words(inputs))}) as server:
        for texts, status in (
            (["a b", "a"], 200),
            (["a" * 99_999] + ["b"] * 9_999, 413),
        ):
            entry = {"name": "x", "datatype": "BYTES", "shape": [len(texts)]}
            words = {"inputs": [entry | {"data": texts}]}
            tracemalloc.start()
            try:
                answer = ask(server, "POST", "/v2/models/m/infer", words)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert answer.status == status and peak < 2**26
            if status == 200:
                assert answer.json["outputs"][0]["data"] == [2, 1, 2, 0]


@pytest.mark.parametrize(
    "layer, known, unknown",
    [
        (layers.StringLookup(vocabulary=["a", "b"], num_oov_indices=0), "b", "c"),
        (layers.IntegerLookup(vocabulary=[5, 7], num_oov_indices=0), 7, 6),
    ],
)
def test_vocabulary_without_unknown_words_serves_its_words(layer, known, unknown):
    dtype, datatype = ("string", "BYTES") if known == "b" else ("int64", "INT64")
    inputs = toolkit.Input((1,), dtype=dtype, name="x")
    model = toolkit.Model(inputs, layer(inputs), name="m")
    with serving({"m": model}) as server:
        answers = [
            ask(
                server,
                "POST",
                "/v2/models/m/infer",
                {
                    "inputs": [
                        {
                            "name": "x",
                            "shape": [1, 1],
                            "datatype": datatype,
                            "data": [x],
                        }
                    ]
                },
            )
            for x in (known, unknown)
        ]
    assert answers[0].json["outputs"][0]["data"] == [1]
    assert answers[1].status == 400
    assert "all inputs should be in the vocabulary" in answers[1].json["error"]
