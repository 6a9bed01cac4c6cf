"""Jobs of several ranks on one GPU, compared with a job of one rank.

NCCL 2.30 or newer connects ranks that share a GPU, if its environment variable permits
it. This checks bits, captured graphs and collectives. It does not show the speed of
several GPUs: the ranks share one.
"""

import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

sys.path.append(str(Path(__file__).resolve().parents[2]))

import gpu_rehearsal
import numpy as np
from gpu_rehearsal import size

import toolkit
from toolkit import distribution, layers

# Without NVLink SHARP, and with one thread block for each collective: the kernels of
# all ranks must run at the same time on one GPU.
SHARED_GPU = {
    "TOOLKIT_DEVICE": "gpu",
    "TOOLKIT_SHARE_GPU": "on",
    "NCCL_MULTI_RANK_GPU_ENABLE": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_MAX_CTAS": "1",
}
GPU = "gpu:0"
# Distribution -> meshes (batch, model). The first mesh has one rank.
JOBS = {
    "tree": size(((1, 1), (2, 1), (4, 1)), ((1, 1), (2, 1))),
    "zero": size(((1, 1), (2, 1)), ()),
    "model": size(((1, 1), (2, 1), (1, 2), (2, 2)), ((1, 1), (1, 2))),
    "nccl": size(((1, 1), (2, 1), (4, 1)), ()),
}
# The largest relative difference of losses of sums by NCCL, whose order differs.
LOSS_TOLERANCE = 1e-3
# The last batch has fewer rows than ranks.
ROWS, BATCH, UNITS, EPOCHS = size((2049, 256, 512, 3), (17, 8, 16, 1))
# The largest ratio of the step of one rank to the step without a distribution.
MAX_RATIO = 1.03
TIMED_STEPS, ROUNDS = size((200, 7), (2, 1))


def data(rows=ROWS):
    """Return random rows and their labels."""
    rng = np.random.default_rng(0)
    x = rng.random((rows, 16, 16), "float32")
    return x, rng.integers(0, 10, rows).astype("int32")


def network():
    """Return a compiled network of attention, dropout and products, from one seed."""
    toolkit.utils.set_random_seed(0)
    tokens = toolkit.Input((16, 16))
    h = layers.Dense(UNITS, "gelu", name="up")(tokens)
    h = layers.Dropout(0.1)(layers.Dense(16, name="down")(h)) + tokens
    y = layers.LayerNormalization()(h)
    h = h + layers.MultiHeadAttention(4, 16)(y, y, use_causal_mask=True)
    h = layers.GlobalAveragePooling1D()(h)
    model = toolkit.Model(tokens, layers.Dense(10)(h))
    loss = toolkit.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(toolkit.optimizers.Adam(1e-3, global_clipnorm=1.0), loss)
    return model


def strategy(name, mesh):
    """Return the distribution of a job: of four parts along each axis."""
    if name != "model":
        options = {"shard_optimizer": name == "zero"}
        options["reduction"] = "nccl" if name == "nccl" else "tree"
        return distribution.DataParallel(shards=4, **options)
    devices = distribution.DeviceMesh(mesh, ["batch", "model"])
    layouts = distribution.LayoutMap(devices)
    layouts[".*up/kernel"] = ("batch", "model")
    layouts[".*up/bias"] = ("model",)
    layouts[".*down/kernel"] = ("model", "batch")
    layouts[".*(query|key|value)/kernel"] = (None, "model", None)
    layouts[".*(query|key|value)/bias"] = ("model", None)
    layouts[".*attention_output/kernel"] = ("model", None, None)
    parts = {"batch": 4, "model": 4}
    return distribution.ModelParallel(layout_map=layouts, shards=parts)


def train(path, name, *mesh):
    """Train as a rank of a job; rank 0 writes the hash and the losses."""
    if gpu_rehearsal.is_on():
        from tests.distribution import gpus

        gpus.install(Path(path).parent, os.environ.get("GPU_REHEARSAL_NCCL"))
    parallel = strategy(name, tuple(map(int, mesh)))
    distribution.set_distribution(parallel)
    model, (x, y) = network(), data()
    history = model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, verbose=0).history
    variables = [*model.variables, *model.optimizer.variables]
    joined = b"".join(np.ascontiguousarray(v).tobytes() for v in variables)
    backend = toolkit.backends.get_backend("cupy")
    facts = {
        "hash": hashlib.sha256(joined).hexdigest(),
        "losses": history["loss"],
        "connected groups": len(backend.device.groups),
    }
    if parallel.is_chief:
        Path(path).write_text(json.dumps(facts), encoding="utf-8")


def _run(folder, name, mesh):
    """Run a job, and return the results of its rank 0."""
    count = mesh[0] * mesh[1]
    path = Path(folder) / f"{name}-{mesh[0]}-{mesh[1]}.json"
    command = [sys.executable, "-m", "toolkit", "run", "--processes", str(count)]
    command += ["--timeout", "60", __file__, str(path), name, *map(str, mesh)]
    process = subprocess.run(
        command,
        env={**os.environ, **SHARED_GPU},
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        return {"error": process.stderr[-2000:]}
    return json.loads(path.read_text("utf-8"))


def _rehearse(folder):
    """Build the stand-in for NCCL, if this is a rehearsal and gcc is installed."""
    from tests.comm import nccl_ranks

    if gpu_rehearsal.is_on() and nccl_ranks.GCC:
        os.environ["GPU_REHEARSAL_NCCL"] = str(nccl_ranks.build(Path(folder)))


def ranks(save):
    """Compare jobs of several ranks on one GPU with jobs of one rank."""
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        _rehearse(folder)
        for name, meshes in JOBS.items():
            expected = {}
            for mesh in meshes:
                row = _run(folder, name, mesh)
                expected = expected or row
                row["passed"] = _is_equal(name, mesh, row, expected)
                results[f"{name} {mesh[0]}x{mesh[1]}"] = row
                save(results)
    return results, all(row["passed"] for row in results.values())


def _is_equal(name, mesh, row, expected):
    if "error" in row or "error" in expected:
        return False
    has_nccl = not gpu_rehearsal.is_on() or "GPU_REHEARSAL_NCCL" in os.environ
    is_connected = row["connected groups"] > 0 or mesh == (1, 1) or not has_nccl
    if name != "nccl":
        return is_connected and row["hash"] == expected["hash"]
    errors = np.abs(np.array(row["losses"]) / np.array(expected["losses"]) - 1)
    return is_connected and float(errors.max()) <= LOSS_TOLERANCE


def rank_step(save):
    """Compare the step of one rank with the step without a distribution."""
    x, y = data(BATCH * TIMED_STEPS)
    strategies = {
        "fit": None,
        "one rank": distribution.DataParallel(devices=[GPU], shards=1),
        "one rank with two parts": distribution.DataParallel(devices=[GPU], shards=2),
    }
    times = {name: [] for name in strategies}
    with toolkit.device(GPU):
        models = {name: network() for name in strategies}
        for number in range(ROUNDS + 1):
            for name, parallel in strategies.items():
                distribution.set_distribution(parallel)
                start = perf_counter()
                models[name].fit(x, y, batch_size=BATCH, verbose=0)
                if number:  # the first run compiles
                    times[name].append((perf_counter() - start) / TIMED_STEPS)
        distribution.set_distribution(None)
    results = {f"seconds of {k}": statistics.median(v) for k, v in times.items()}
    plain = results["seconds of fit"]
    for name in list(strategies)[1:]:
        results[f"ratio of {name}"] = results[f"seconds of {name}"] / plain
    is_timed = not gpu_rehearsal.is_on()
    return results, not is_timed or results["ratio of one rank"] <= MAX_RATIO


if __name__ == "__main__":
    train(*sys.argv[1:])
