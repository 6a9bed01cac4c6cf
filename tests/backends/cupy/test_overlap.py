"""Tests of the launches of a loop over batches, in each order that a device allows."""

import gc

import numpy as np
import pytest

import toolkit
from tests.backends.cupy.test_programs import OPTIONS
from toolkit import layers, ops
from toolkit.backends.cupy.eager import EagerKernel
from toolkit.models.callbacks import progress
from toolkit.models.training import loss_watch


@pytest.fixture
def device(on_host):
    return on_host.device


def small_model():
    toolkit.utils.set_random_seed(3)
    model = toolkit.Sequential(
        [layers.Input((6,)), layers.Dense(5, activation="relu"), layers.Dense(3)]
    )
    loss = toolkit.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, metrics=["accuracy"])
    return model


def samples(count):
    rng = np.random.default_rng(0)
    return rng.normal(size=(count, 6)).astype("float32"), rng.integers(0, 3, count)


WAITS = ("download", "synchronize", "wait for stream", "wait for fetches")
ORDERS = [
    ("copies", "fetches", "stream"),
    ("stream", "copies", "fetches"),
    ("fetches", "stream", "copies"),
]


@pytest.mark.parametrize("on_host", [{"order": o} for o in ORDERS], indirect=True)
def test_results_do_not_depend_on_the_order_of_streams(device, monkeypatch):
    """Each stream runs as far as it can; each one has priority in one case."""
    real = EagerKernel._call_fallback

    def drained(self, *arguments):  # NumPy does not wait for streams
        device.drain()
        return real(self, *arguments)

    monkeypatch.setattr(EagerKernel, "_call_fallback", drained)
    x, y = samples(96)
    expected = small_model().fit(x, y, **OPTIONS, epochs=2).history
    model = small_model()
    with toolkit.device("gpu:0"):
        actual = model.fit(x, y, **OPTIONS, epochs=2).history
        outputs = model.predict(x, batch_size=16, verbose=0)
    for name, values in expected.items():
        np.testing.assert_allclose(actual[name], values, rtol=1e-5)
    np.testing.assert_allclose(outputs, model.predict(x, verbose=0), rtol=1e-5)


@pytest.mark.parametrize("on_host", [{"order": ORDERS[0]}], indirect=True)
def test_next_batch_is_copied_during_a_step(device, unwatched_losses):
    x, y = samples(96)
    model = small_model()
    with toolkit.device("gpu:0"):
        model.fit(x, y, **OPTIONS)
        device.ran.clear()
        device.log.clear()
        model.fit(x, y, **OPTIONS)
    log, steps = device.log, len(x) // OPTIONS["batch_size"]
    first, last = log.index("replay"), len(log) - log[::-1].index("replay")
    started = log[first : log.index("copy", last) + 1]
    counts = {kind: started.count(kind) for kind in ("replay", "upload", "copy")}
    # Both parts of a batch arrive where they are read; all results leave by one copy.
    assert counts == {"replay": steps, "upload": 2 * steps - 2, "copy": steps}
    # The host waits only for free pinned memory, which uploads occupy.
    assert not {*WAITS, "fetch"} & set(started)
    ran = [kind for _, kind in device.ran]
    ran = ran[: ran.index("fetch")]  # the values of the epoch
    arrivals = [i for i, kind in enumerate(ran) if kind == "upload"][-2 * steps :]
    products = [i for i, kind in enumerate(ran) if kind == "product"]
    of_step = len(products) // steps
    for step in range(steps - 1):
        first_product, last_product = (
            products[of_step * step + i] for i in (0, of_step - 1)
        )
        assert max(arrivals[2 * step + 2 : 2 * step + 4]) < first_product, (
            "before its turn"
        )
        if step < steps - 2:
            assert min(arrivals[2 * step + 4 : 2 * step + 6]) > last_product, (
                "its place is free"
            )


def arrivals(device, steps, arrays_of_batch):
    """Return for steps 3 on whether the batch arrived before the previous step."""
    ran = [kind for _, kind in device.ran]
    if "fetch" in ran:
        ran = ran[: ran.index("fetch")]
    uploads = [i for i, kind in enumerate(ran) if kind == "upload"][
        -arrays_of_batch * steps :
    ]
    products = [i for i, kind in enumerate(ran) if kind == "product"]
    products = products[:: len(products) // steps]
    return [
        max(uploads[arrays_of_batch * n : arrays_of_batch * n + arrays_of_batch])
        < products[n - 1]
        for n in range(2, steps)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("on_host", [{"order": ORDERS[0]}], indirect=True)
def test_batches_of_a_data_set_are_prefetched_in_all_loops(device, unwatched_losses):
    x, y = samples(64)
    batches = toolkit.data.Dataset.from_tensor_slices((x, y)).batch(8).prefetch(2)
    model, twin = small_model(), small_model()
    w = toolkit.Variable(np.ones((6, 3), "float32"))

    @toolkit.function
    def step(x):
        w.assign_sub(0.01 * ops.matmul(ops.transpose(x), ops.matmul(x, w)))

    def loop():
        for a, _ in batches.unbatch().batch(4):  # no memory of this size is left yet
            step(a)

    with toolkit.device("gpu:0"):
        model.fit(batches, verbose=0)
        device.ran.clear()
        actual = model.fit(batches, verbose=0).history["loss"]
        assert all(arrivals(device, 8, 2))
        loop()
        device.drain()
        device.ran.clear()
        loop()
        device.drain()
        assert all(arrivals(device, 16, 1))
    twin.fit(x, y, **OPTIONS)
    expected = twin.fit(x, y, **OPTIONS).history["loss"]
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


class Reader(toolkit.callbacks.Callback):
    """Callback that receives all logs, and reads the logs of some batches."""

    def __init__(self, batches):
        super().__init__()
        self.batches, self.visited = batches, []

    def on_train_batch_end(self, batch, logs=None):
        assert len(logs) == 2
        assert "loss" in logs
        if batch in self.batches:
            self.visited.append(logs["loss"])


@pytest.mark.parametrize("on_host", [{"order": ORDERS[1]}], indirect=True)
@pytest.mark.parametrize("verbose", [0, 1])
def test_epoch_synchronizes_only_when_values_are_read(
    device, monkeypatch, capsys, verbose
):
    monkeypatch.setattr(loss_watch, "_WATCH", 0.0)  # after each step
    monkeypatch.setattr(progress, "_REDRAW_SECONDS", 0.0)
    x, y = samples(96)
    model = small_model()

    def waits(*batches):
        callback = Reader(batches)
        device.log.clear()
        model.fit(x, y, **(OPTIONS | {"verbose": verbose}), callbacks=[callback])
        log = device.log
        last = len(log) - log[::-1].index("replay")
        waits_of_loop = [
            kind for kind in log[log.index("replay") : last] if kind in WAITS
        ]
        assert log.count("fetch"), "the newest values are on their way"
        assert len(callback.visited) == len(batches)
        return waits_of_loop

    with toolkit.device("gpu:0"):
        model.fit(x, y, **OPTIONS)
        assert waits() == []
        assert waits(5) == ["wait for fetches"]
    assert ("loss: " in capsys.readouterr().out) == bool(verbose)


def test_outputs_are_copied_during_the_next_step(device):
    x, _ = samples(64)
    model = small_model()
    with toolkit.device("gpu:0"):
        model.predict(x, batch_size=8, verbose=0)
        device.log.clear()
        actual = model.predict(x, batch_size=8, verbose=0)
    kinds = [kind for kind in device.log if kind in ("replay", "fetch")]
    assert kinds == ["replay", "fetch"] * 8
    np.testing.assert_allclose(actual, model.predict(x, verbose=0), rtol=1e-5)


def test_memory_of_a_reference_cycle_is_reused_once(on_host):
    class Holder:
        pass

    holder = Holder()
    holder.cycle, holder.array = holder, on_host.device.upload(np.arange(5))
    address = on_host.device.address(holder.array)
    del holder
    gc.collect()
    on_host.device.uploads.mark()
    on_host.device.watch(None, [])  # another program was started
    first = on_host.device.upload(np.arange(5))
    second = on_host.memory.empty((5,), "int64")
    assert address == on_host.device.address(first)
    assert address != on_host.device.address(second)
    assert on_host.memory.to_numpy(first).tolist() == [0, 1, 2, 3, 4]
