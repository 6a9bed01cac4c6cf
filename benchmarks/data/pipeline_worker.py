"""One job of pipeline.py in one library; it prints its result as JSON."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from time import perf_counter

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
STEP, OPEN, READ = 0.01, 0.03, 0.015
ROWS, BATCH, ELEMENTS, IMAGES, CALLS = 60_000, 128, 100_000, 20_000, 1_600


def seconds(function, repeat=1):
    """Return the minimum time of some runs, after one warm-up if several."""
    best = float("inf")
    for _ in range(repeat):
        start = perf_counter()
        function()
        best = min(best, perf_counter() - start)
    return best


def rows():
    """Return images and labels in memory."""
    rng = np.random.default_rng(0)
    return rng.random((ROWS, 28, 28), np.float32), np.arange(ROWS)


def read_samples(count):
    """Yield samples of a slow file, as in TensorFlow's guide to pipelines."""
    time.sleep(OPEN)
    for sample in range(count):
        time.sleep(READ)
        yield (sample,)


def train(dataset, epochs=2):
    """Return the seconds of a loop whose steps take 0.01 s each."""
    start = perf_counter()
    for _ in range(epochs):
        for _ in dataset:
            time.sleep(STEP)
    return perf_counter() - start


def spin(x):
    """Compute for about a millisecond with the GIL."""
    total = 0
    for i in range(20_000):
        total += i
    return x + total


def resident():
    """Return the resident memory of this process, in bytes."""
    with open("/proc/self/statm", encoding="utf-8") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- pipelines that toolkit and tf.data share -----------------------------------------


def like_tf_data(job, module):
    """Return the result of a job that has the same code for toolkit and tf.data."""
    dataset, autotune = module.Dataset, module.AUTOTUNE

    class Artificial(dataset):
        def __new__(cls, num_samples=3):
            return dataset.from_generator(
                read_samples,
                output_types=(module.int64,),
                output_shapes=((),),
                args=(num_samples,),
            )

    if job == "naive":
        return train(Artificial())
    if job == "prefetch":
        return train(Artificial().prefetch(autotune))
    if job == "interleave":
        return train(dataset.range(5).interleave(Artificial))
    if job == "parallel_interleave":
        files = dataset.range(5)
        return train(files.interleave(Artificial, num_parallel_calls=autotune))
    if job == "gather":
        batches = dataset.from_tensor_slices(rows()[0]).shuffle(ROWS).batch(BATCH)
        return seconds(lambda: [None for _ in batches], 3)
    if job == "elements":
        numbers = dataset.range(ELEMENTS).map(lambda x: x + 1).shuffle(ELEMENTS)
        batches = numbers.batch(BATCH).prefetch(2)
        return seconds(lambda: [None for _ in batches], 3) / ELEMENTS
    if job.startswith("generator"):
        return generated(job, module)
    if job == "blocking":
        return blocking(dataset, module)
    raise KeyError(job)


def yielded(kind, first=0, step=1):
    """Yield the elements of a generator job, which needs little work itself."""
    images = np.random.default_rng(0).integers(0, 256, (64, 32, 32, 3), np.uint8)
    for i in range(first, IMAGES, step):
        if kind == "scalars":
            yield i
        elif kind == "images":
            yield images[i % 64], i
        else:
            yield {"number": i, "share": 0.5}


def generated(job, module):
    """Return the seconds per element of a generator, single or in batches."""
    _, kind, size = job.split("_")
    spec = module.TensorSpec
    signatures = {
        "scalars": spec((), module.int64),
        "images": (spec((32, 32, 3), module.uint8), spec((), module.int64)),
        "dicts": {"number": spec((), module.int64), "share": spec((), module.float32)},
    }
    dataset = module.Dataset.from_generator(
        lambda: yielded(kind), output_signature=signatures[kind]
    )
    if size != "1":
        dataset = dataset.batch(int(size))
    return seconds(lambda: [None for _ in dataset], 3) / IMAGES


def blocking(dataset, module):
    """Return the seconds per element of calls that wait, 16 at a time."""

    def wait(x):
        time.sleep(0.005)
        return x

    numbers = dataset.range(CALLS)
    if hasattr(module, "numpy_function"):
        kind = module.int64
        function = lambda x: module.numpy_function(wait, [x], kind)  # noqa: E731
    else:
        function = wait
    calls = numbers.map(function, num_parallel_calls=16)
    return seconds(lambda: [None for _ in calls]) / CALLS


# --- features of toolkit only ---------------------------------------------------------


def ours(job, data):
    """Return the result of a job that only toolkit supports."""
    dataset = data.Dataset
    if job == "python_bound":
        return in_processes(dataset, 2)
    if job == "files":
        return slow_files(data)
    if job == "first_batch":
        return first_batch(data)
    if job in ("shuffle_memory", "cache_memory"):
        return memory(dataset, job)
    return position(dataset, job)


def in_processes(dataset, count):
    """Return the seconds per element of a function that holds the GIL."""
    sys.modules.setdefault("pipeline_worker", sys.modules["__main__"])
    spin.__module__ = "pipeline_worker"
    sys.path.insert(0, str(Path(__file__).parent))
    mapped = dataset.range(600).map(spin, num_parallel_calls=count, workers="process")
    iterator = iter(mapped)
    for _ in range(50):  # until all processes have started
        next(iterator)
    return seconds(lambda: [None for _ in iterator]) / 550


def slow_files(data):
    """Process 16 files of 10 lines, 0.01 s a line, 8 at a time: ideally 0.2 s."""
    with tempfile.TemporaryDirectory() as folder:
        for i in range(16):
            Path(folder, f"{i:02}.txt").write_text("line\n" * 10, "utf-8")

        def opened(path):
            return data.TextLineDataset(path).map(lambda x: time.sleep(0.01) or x)

        files = data.Dataset.list_files(f"{folder}/*.txt", shuffle=False)
        lines = files.interleave(opened, cycle_length=8, num_parallel_calls=8)
        return seconds(lambda: [None for _ in lines])


def first_batch(data):
    """Return the seconds from the construction of a pipeline to its first batch."""
    x, y = rows()
    dataset = data.Dataset  # imports the stages
    start = perf_counter()
    dataset = data.Dataset.from_tensor_slices((x, y)).shuffle(1_000)
    scaled = dataset.map(lambda a, b: (a / 255, b), num_parallel_calls=data.AUTOTUNE)
    next(iter(scaled.batch(BATCH).prefetch(data.AUTOTUNE)))
    return perf_counter() - start


def memory(dataset, job):
    """Return the memory of a pass over an array of 1 GB, as a fraction of the array."""
    array = np.zeros((1 << 18, 1024), np.float32)
    array += 1
    before = resident()
    numbers = dataset.from_tensor_slices(array)
    stage = numbers.shuffle(len(array)) if job == "shuffle_memory" else numbers.cache()
    for batch in stage.batch(BATCH):
        batch.sum()
    return (resident() - before) / array.nbytes


def position(dataset, job):
    """Return the seconds to save or restore a position in arrays."""
    iterator = iter(dataset.from_tensor_slices(rows()).shuffle(ROWS).batch(BATCH))
    for _ in range(100):
        next(iterator)
    if job == "save_position":
        return seconds(iterator.get_state, 20)
    state = iterator.get_state()
    return seconds(lambda: iterator.set_state(state), 20)


# --- other libraries ------------------------------------------------------------------


def with_numpy(job):
    """Run the loop that a NumPy user would write."""
    x, _ = rows()
    rng = np.random.default_rng(0)

    def loop():
        order = rng.permutation(ROWS)
        for start in range(0, ROWS, BATCH):
            x[order[start : start + BATCH]]

    return seconds(loop, 3)


def with_torch(job):
    """Run the best option of DataLoader: rows gathered by index if possible."""
    import torch
    from torch.utils import data

    if job == "gather":
        return torch_gather(torch, data)
    if job == "elements":
        numbers = [*range(ELEMENTS)]

        class Numbers(data.Dataset):
            def __len__(self):
                return ELEMENTS

            def __getitem__(self, i):
                return numbers[i] + 1

        loader = data.DataLoader(Numbers(), BATCH, shuffle=True)
        return seconds(lambda: [None for _ in loader], 3) / ELEMENTS
    if job.startswith("generator"):
        return torch_generated(job, data)

    class Slow(data.Dataset):
        def __len__(self):
            return CALLS

        def __getitem__(self, i):
            time.sleep(0.005)
            return i

    loader = data.DataLoader(Slow(), batch_size=None, num_workers=16)
    return seconds(lambda: [None for _ in loader]) / CALLS


def torch_generated(job, data):
    """Return the seconds per element, in-process or in two processes."""
    _, kind, size = job.split("_")

    class Yielded(data.IterableDataset):
        def __iter__(self):
            worker = data.get_worker_info()
            return yielded(kind, *((worker.id, worker.num_workers) if worker else ()))

    batch = None if size == "1" else int(size)
    loaders = [
        data.DataLoader(Yielded(), batch),
        data.DataLoader(Yielded(), batch, num_workers=2, persistent_workers=True),
    ]
    durations = [seconds(lambda one=one: [None for _ in one], 3) for one in loaders]
    return min(durations) / IMAGES


def torch_gather(torch, data):
    """Return the seconds of the faster of two ways to shuffled batches."""
    x = torch.from_numpy(rows()[0])
    tensors = data.TensorDataset(x)
    sampler = data.BatchSampler(data.RandomSampler(tensors), BATCH, drop_last=False)
    loaders = [
        data.DataLoader(tensors, BATCH, shuffle=True),
        data.DataLoader(tensors, sampler=sampler, batch_size=None),
    ]
    return min(seconds(lambda one=one: [None for _ in one], 2) for one in loaders)


def figure(library, job):
    """Return the result of a job in a library."""
    if library == "numpy":
        return with_numpy(job)
    if library == "torch":
        return with_torch(job)
    if library == "tf.data":
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        import tensorflow as tf

        tf.Dataset, tf.AUTOTUNE = tf.data.Dataset, tf.data.AUTOTUNE
        return like_tf_data(job, tf)
    from toolkit import data

    if library == "one process":
        return in_processes(data.Dataset, 1)
    data.int64, data.float32, data.uint8 = "int64", "float32", "uint8"
    try:
        return like_tf_data(job, data)
    except KeyError:
        return ours(job, data)


if __name__ == "__main__":
    print(json.dumps(figure(*sys.argv[1:])))
