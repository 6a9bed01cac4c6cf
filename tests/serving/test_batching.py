"""Test the batching of requests: their selection, number and waiting time."""

import asyncio
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import toolkit
from tests.export.native import stub
from tests.serving.gated import BatcherClient, Gated, values
from tests.serving.serve import (
    Client,
    ask,
    binary_output,
    binary_request,
    mlp,
    request,
    rows,
    serving,
    tensor,
    wait_for,
)
from toolkit import layers
from toolkit.errors import ArgumentError, UnsupportedError
from toolkit.serving import App, Batching, ModelServable, Servable, TensorSpec
from toolkit.serving.batching import Item
from toolkit.serving.messages import RequestError
from toolkit.serving.native import NativeServable
from toolkit.serving.servable import batch_sizes

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "largest, one_size, expected",
    [
        (1, False, (1,)),
        (8, False, (1, 2, 4, 8)),
        (12, False, (1, 2, 4, 8, 12)),
        (12, True, (12,)),
    ],
)
def test_sizes(largest, one_size, expected):
    assert batch_sizes(largest, one_size) == expected


def test_waiting_requests_are_batched():
    async def run():
        client = BatcherClient(Gated())
        first = client.ask(1)
        await client.started()
        later = [client.ask(x) for x in (2, 3, 4, 5, 6)]
        client.servable.gate.set()
        assert values(await first) == [2]
        assert [values(await x) for x in later] == [[4], [6], [8], [10], [12]]
        sizes = [len(x) for x in client.servable.batches]
        assert sizes == [1, 4, 1]
        await client.batcher.close()

    asyncio.run(run())


def test_batches_are_padded_with_zeros_to_the_next_size():
    async def run():
        client = BatcherClient(Gated(sizes=(4,), is_open=True))
        assert values(await client.ask(7, 8, 9)) == [14, 16, 18]
        assert values(await client.ask(1)) == [2]
        assert client.servable.batches[0][:, 0].tolist() == [7, 8, 9, 0]
        assert client.servable.batches[1][:, 0].tolist() == [1, 0, 0, 0]
        await client.batcher.close()

    asyncio.run(run())


def test_arrays_of_requests_are_aligned():
    async def run():
        client = BatcherClient(Gated(is_open=True))
        loop = asyncio.get_running_loop()
        for at in range(1, 5):
            future = loop.create_future()
            x = np.frombuffer(bytes(at + 4), "float32", 1, at).reshape(1, 1)
            client.batcher.add(Item([x], 1, None, future.set_result))
            client.batcher.schedule_batches()
            await future
        assert client.servable.aligned == {True}
        await client.batcher.close()

    asyncio.run(run())


def test_request_larger_than_a_batch_is_split():
    async def run():
        client = BatcherClient(Gated(is_open=True))
        assert values(await client.ask(*range(10))) == list(range(0, 20, 2))
        assert [len(x) for x in client.servable.batches] == [4, 4, 2]
        await client.batcher.close()

    asyncio.run(run())


def test_requests_of_other_extents_are_batched_separately_in_order():
    async def run():
        client = BatcherClient(Gated())
        first = client.ask(1)
        await client.started()
        later = [client.ask(x, width=w) for x, w in ((2, 1), (3, 2), (4, 1), (5, 3))]
        client.servable.gate.set()
        await asyncio.gather(first, *later)
        shapes = [x.shape for x in client.servable.batches]
        assert shapes == [(1, 1), (2, 1), (1, 2), (1, 3)]
        await client.batcher.close()

    asyncio.run(run())


def test_full_queue_refuses():
    async def run():
        client = BatcherClient(Gated(), queue=2)
        first = client.ask(1)
        await client.started()
        waiting = [client.ask(2), client.ask(3)]
        with pytest.raises(RequestError, match="too many") as refused:
            client.ask(4)
        assert refused.value.status == 429
        waiting[0].item.cancel()
        retried = client.ask(5)
        client.servable.gate.set()
        assert values(await retried) == [10]
        assert values(await waiting[1]) == [6]
        await first
        assert 2 not in np.concatenate(client.servable.batches)
        await client.batcher.close()

    asyncio.run(run())


def test_deadlines_apply_in_the_queue_and_in_a_batch():
    async def run():
        client = BatcherClient(Gated(), timeout=60)
        first = client.ask(1, seconds=0.05)
        await client.started()
        short, long = client.ask(2, seconds=0.05), client.ask(3)
        for late in (short, first):
            result = await late
            assert isinstance(result, RequestError) and result.status == 504
        assert client.batcher.waiting == 1
        client.servable.gate.set()
        assert values(await long) == [6]
        await client.batcher.close()

    asyncio.run(run())


def test_error_affects_only_its_request(caplog):
    async def run():
        client = BatcherClient(Gated())
        first = client.ask(1)
        await client.started()
        futures = [
            client.ask(2),
            client.ask(-1),
            client.ask(float("nan")),
            client.ask(3),
        ]
        client.servable.gate.set()
        good, below, broken, last = await asyncio.gather(*futures)
        assert values(good) == [4] and values(last) == [6] and await first
        assert below.status == 400 and "out of range" in str(below)
        assert broken.status == 500 and "secret" not in str(broken)
        await client.batcher.close()

    asyncio.run(run())
    assert "a batch failed" in caplog.text


def test_waiting_increases_the_batch_size():
    async def run():
        client = BatcherClient(Gated(is_open=True), wait=0.5)
        first = client.ask(1)
        await asyncio.sleep(0.02)
        second = client.ask(2)
        await asyncio.gather(first, second)
        assert [len(x) for x in client.servable.batches] == [2]
        await client.batcher.close()

    asyncio.run(run())


def test_full_batch_does_not_wait():
    async def run():
        client = BatcherClient(Gated(is_open=True), wait=300)
        requests = [client.ask(x) for x in range(4)]
        await asyncio.wait_for(asyncio.gather(*requests), 60)
        await client.batcher.close()

    asyncio.run(run())


def test_workers_compute_concurrently():
    async def run():
        client = BatcherClient(Gated(sizes=(1,)), workers=2)
        futures = [client.ask(1), client.ask(2)]
        await client.started()
        await client.started()  # while the first one still runs
        client.servable.gate.set()
        assert [values(await x) for x in futures] == [[2], [4]]
        await client.batcher.close()

    asyncio.run(run())


@pytest.mark.parametrize("count", [0, 1, 6])
def test_close_computes_accepted_requests(count):
    async def run():
        client = BatcherClient(Gated(), wait=60)
        futures = [client.ask(x) for x in range(count)]
        await asyncio.sleep(0.01)
        closing = asyncio.ensure_future(client.batcher.close())
        client.servable.gate.set()
        await asyncio.wait_for(closing, 10)
        assert [values(x.result()) for x in futures] == [[2 * x] for x in range(count)]

    asyncio.run(run())


def test_close_ends_when_clients_disconnect():
    async def run():
        client = BatcherClient(Gated(sizes=(1,)))
        first = client.ask(1)
        await client.started()
        second = client.ask(2)
        closing = asyncio.ensure_future(client.batcher.close())
        await asyncio.sleep(0.01)
        second.item.cancel()
        client.servable.gate.set()
        await asyncio.wait_for(closing, 10)
        assert values(await first) == [2]

    asyncio.run(run())


def test_close_waits_no_longer_than_requests_do():
    async def run():
        client = BatcherClient(Gated(), timeout=0.1)
        first, second = client.ask(1), client.ask(2)
        await client.started()
        third = client.ask(3)
        start = time.perf_counter()
        await client.batcher.close()
        assert time.perf_counter() - start < 10
        for late in (first, second, third):
            assert (await late).status == 504
        client.servable.gate.set()

    asyncio.run(run())


def test_cancelled_requests_are_not_computed():
    async def run():
        client = BatcherClient(Gated(sizes=(1,)))
        future = client.ask(*range(10), seconds=0.05)
        await client.started()
        assert (await future).status == 504
        client.servable.gate.set()
        await client.batcher.close()
        assert len(client.servable.batches) == 1

    asyncio.run(run())


def test_large_requests_are_computed_in_a_thread():
    class Quick(Gated):
        def run(self, arrays):
            threads.append(threading.current_thread())
            return super().run(arrays)

    async def run():
        servable = Quick(is_open=True)
        servable.quick_rows = 4
        client = BatcherClient(servable)
        for count, is_inline in ((4, True), (5, False)):
            threads.clear()
            await client.ask(*range(count))
            current = threading.current_thread()
            assert {x is current for x in threads} == {is_inline}
        await client.batcher.close()

    threads = []
    asyncio.run(run())


@pytest.mark.parametrize("quick_rows", [0, 1, 4])
def test_single_request_is_computed_immediately(quick_rows):
    """Test that only a fast batch runs in the caller's thread."""

    async def run():
        servable = Gated(is_open=True)
        servable.quick_rows = quick_rows
        client = BatcherClient(servable)
        future = client.ask(1)
        assert not servable.batches
        await future
        servable.batches.clear()
        future = client.ask(1, at_once=True)
        assert future.done() == bool(quick_rows) and not client.batcher.waiting
        assert values(await future) == [2]
        future = client.ask(1, 2, at_once=True)
        assert future.done() == (quick_rows > 1)
        assert values(await future) == [2, 4]
        await client.batcher.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "sizes, seconds, expected",
    [
        ((1, 2, 4), {1: 0, 2: 0, 4: 0}, 4),
        ((1, 2, 4), {1: 0, 2: 0, 4: 0.005}, 2),
        ((1, 2, 4), {1: 0.005, 2: 0, 4: 0}, 0),
        ((8,), {8: 0}, 8),
    ],
)
@pytest.mark.parametrize("is_whole", [False, True])
def test_fast_batches_are_determined_by_measurement(
    sizes, seconds, expected, is_whole, monkeypatch
):
    passed = [0.0]
    monkeypatch.setattr("toolkit.serving.servable.perf_counter", lambda: passed[0])

    class Timed(Servable):
        inputs = (TensorSpec("x", "float32", (None, 1)),)
        outputs = inputs
        takes_whole_batches = is_whole

        def run(self, arrays):
            passed[0] += seconds[len(arrays[0])]
            return arrays

    servable = Timed(sizes)
    servable.warm()
    assert servable.quick_rows == (0 if is_whole else expected)


# --- over HTTP ------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_concurrent_responses_equal_predict(workers):
    """Use concurrent clients with requests of different extents."""
    model = mlp()
    wrong = []

    def client(server, seed):
        generator = np.random.default_rng(seed)
        with closing(Client(server)) as connection:
            for _ in range(40):
                count = int(generator.integers(1, 12))
                x = generator.standard_normal((count, 5), dtype="float32")
                connection.send(binary_request(x))
                outputs = binary_output(connection.read())
                if not np.allclose(outputs, model(x).numpy(), 1e-5, 1e-6):
                    wrong.append((seed, count))

    with serving({"mlp": model}, Batching(size=8, workers=workers)) as server:
        threads = [threading.Thread(target=client, args=(server, i)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_response_is_independent_of_other_requests_for_one_size():
    model = mlp(64, 10)
    x = rows(1, 64)
    with serving({"mlp": model}, Batching(size=16, one_size=True)) as server:
        with closing(Client(server)) as client:
            responses = set()
            for count in (0, 1, 6, 15, 40):
                clients = [Client(server) for _ in range(count)]
                for i, other in enumerate(clients):
                    other.send(binary_request(rows(1, 64, seed=i + 1)))
                client.send(binary_request(x))
                responses.add(binary_output(client.read()).tobytes())
                for other in clients:
                    other.close()
        assert len(responses) == 1


def test_request_of_a_disconnected_client_is_not_computed():
    servable = Gated()
    with serving({"m": servable}) as server:
        body = {"inputs": [tensor("x", np.float32([[1]]))]}
        first, second = Client(server), Client(server)
        first.send(request("POST", "/v2/models/m/infer", body))
        assert servable.started.acquire(timeout=30)
        second.send(request("POST", "/v2/models/m/infer", body))
        batcher = server.service.models["m"].batcher
        wait_for(lambda: batcher.waiting == 1)
        second.close()
        wait_for(lambda: batcher.waiting == 0)
        servable.gate.set()
        assert first.read().status == 200
        first.close()
    assert len(servable.batches) == 1


@pytest.mark.parametrize("where", ["header", "parameter"])
def test_deadlines_of_clients(where):
    servable = Gated()
    words = {"inputs": [tensor("x", np.float32([[1]]))]}
    headers = {"Request_Timeout": "0.05"} if where == "header" else {}
    if where == "parameter":
        words["parameters"] = {"timeout": 50_000}
    with serving({"m": servable}) as server:
        answer = ask(server, "POST", "/v2/models/m/infer", words, **headers)
        servable.gate.set()
        assert answer.status == 504 and "in time" in answer.json["error"]


# --- models ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["resnet18_dynamo", "bert_torchscript"])
def test_onnx_file(name):
    file = ROOT / "tests" / "fixtures" / "onnx" / f"{name}.onnx"
    with np.load(file.with_name(f"{name.partition('_')[0]}.npz")) as arrays:
        inputs = [arrays[key] for key in sorted(arrays) if key.startswith("input")]
        expected = [arrays[key] for key in sorted(arrays) if key.startswith("output")]
    with serving({"m": file}, Batching(size=4)) as server:
        about = ask(server, "GET", "/v2/models/m").json
        names = [x["name"] for x in about["inputs"]]
        body = {"inputs": [tensor(n, x) for n, x in zip(names, inputs, strict=True)]}
        answer = ask(server, "POST", "/v2/models/m/infer", body)
    for output, right in zip(answer.json["outputs"], expected, strict=True):
        actual = np.reshape(output["data"], output["shape"])
        np.testing.assert_allclose(actual, right, rtol=1e-4, atol=1e-5)


def test_native_library(tmp_path):
    tmp_path.chmod(0o700)
    path = stub.shared(tmp_path / "digits.so")
    x, number = rows(11, 3), np.arange(11, dtype="int32") // 2
    body = {"inputs": [tensor("x", x), tensor("number", number)]}
    with serving({"digits": path}, Batching(size=16)) as server:
        assert server.service.models["digits"].batcher.servable.sizes == (1, 8)
        answer = ask(server, "POST", "/v2/models/digits/infer", body)
        assert answer.status == 200, answer.body
        actual = np.reshape(answer.json["outputs"][0]["data"], (11, 3))
    np.testing.assert_allclose(actual, x * stub.WEIGHTS + number[:, None], rtol=1e-6)


def test_stateful_library_is_refused(tmp_path):
    tmp_path.chmod(0o700)
    library = toolkit.load_native(stub.shared(tmp_path / "digits.so", states=1))
    with pytest.raises(UnsupportedError, match="has states"):
        NativeServable(library)


@pytest.mark.parametrize("name", ["", "a/b", 3])
def test_names_of_models(name):
    with pytest.raises(ArgumentError, match="a model's name"):
        App({name: Gated()})


def test_free_extents_of_a_model():
    inputs = toolkit.Input((None, 2), name="x")
    outputs = layers.GlobalAveragePooling1D(name="y")(inputs)
    model = toolkit.Model(inputs, outputs)
    with serving({"m": model}) as server:
        for length in (3, 5, 3):
            x = rows(2, length, 2)
            answer = ask(
                server, "POST", "/v2/models/m/infer", {"inputs": [tensor("x", x)]}
            )
            actual = np.reshape(answer.json["outputs"][0]["data"], (2, 2))
            np.testing.assert_allclose(actual, x.mean(axis=1), rtol=1e-5, atol=1e-6)


def test_index_out_of_range_is_a_client_error():
    inputs = toolkit.Input((2,), dtype="int32", name="x")
    model = toolkit.Model(inputs, layers.Embedding(4, 2)(inputs))
    with serving({"m": model}) as server:
        body = {"inputs": [tensor("x", np.int32([[0, 4]]))]}
        answer = ask(server, "POST", "/v2/models/m/infer", body)
        assert answer.status == 400 and "out of range" in answer.json["error"]
        body = {"inputs": [tensor("x", np.int32([[0, 3]]))]}
        assert ask(server, "POST", "/v2/models/m/infer", body).status == 200


def test_outputs_of_the_same_name_are_numbered():
    inputs = toolkit.Input((3, 2), name="x")
    outputs = layers.LSTM(4, return_state=True, name="lstm")(inputs)
    servable = ModelServable(toolkit.Model(inputs, outputs))
    assert [y.name for y in servable.outputs] == ["output_0", "output_1", "output_2"]


class Doubling(toolkit.Model):
    def call(self, x):
        return {"twice": x * 2, "sum": toolkit.ops.sum(x, axis=-1)}


def test_model_built_for_a_shape():
    model = Doubling()
    model.build((None, 2))
    body = {"inputs": [tensor("input_0", rows(3, 2))]}
    with serving({"m": model}) as server:
        answer = ask(server, "POST", "/v2/models/m/infer", body)
    outputs = {x["name"]: x for x in answer.json["outputs"]}
    assert outputs["sum"]["shape"] == [3]
    twice = np.reshape(outputs["twice"]["data"], (3, 2))
    np.testing.assert_allclose(twice, rows(3, 2) * 2)


def stateful():
    inputs = toolkit.Input(batch_shape=(2, 3, 2))
    return toolkit.Model(inputs, layers.LSTM(4, stateful=True)(inputs))


def without_rows():
    inputs = toolkit.Input((3,))
    total = layers.Lambda(lambda x: toolkit.ops.sum(x))(inputs)
    return toolkit.Model(inputs, total)


@pytest.mark.parametrize(
    "make, error, words",
    [
        (
            lambda: toolkit.Sequential([layers.Dense(2)]),
            ArgumentError,
            "expected a built model",
        ),
        (stateful, UnsupportedError, "changes .* in its prediction"),
        (without_rows, ArgumentError, "one row for each"),
    ],
)
def test_unservable_models_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        ModelServable(make()).warm()


def test_model_of_one_batch_size_is_padded_to_it():
    inputs = toolkit.Input(batch_shape=(4, 3), name="x")
    model = toolkit.Model(inputs, layers.Dense(2, name="y")(inputs))
    x = rows(6, 3)
    with serving({"m": model}) as server:
        body = {"inputs": [tensor("x", x)]}
        answer = ask(server, "POST", "/v2/models/m/infer", body)
        actual = np.reshape(answer.json["outputs"][0]["data"], (6, 2))
    expected = [model(x[:4]).numpy(), model(np.resize(x[4:], (4, 3))).numpy()[:2]]
    np.testing.assert_allclose(actual, np.concatenate(expected), rtol=1e-5)
