"""GPU training steps compared with torch and JAX: equal loops, data on the device.

Each library runs in a separate process: `gpu_speed.py LIBRARY CASE PRECISION` prints
the seconds of a step, and the seconds until the first step is complete.
"""

import compileall
import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from signal import SIGKILL
from statistics import median
from time import perf_counter, sleep

sys.path.append(str(Path(__file__).resolve().parents[2]))
sys.path.append(str(Path(__file__).resolve().parents[1] / "peers"))

import gpu_rehearsal
from gpu_rehearsal import size
from gpu_table import BEGUN, COMPILED, LIBRARIES, OURS, RUNS

import toolkit
from toolkit.bench.networks import TEXT_LENGTH, WORDS

# Peers do not need these imports, so their time starts after them.
IMPORTED = perf_counter()

# The maximum seconds of one library in one case; with fewer left, no library starts.
ROUNDS, STEPS, WARM_UP = size((5, 20, 10), (1, 1, 2))
LIMIT, MINIMUM = 150, 10
# The maximum seconds of the steps of a case, after compilation.
PAUSE = 30
# case: (batch, maximum ratio of our time to the best peer's)
CASES = {
    "cifar_cnn": (size(256, 4), 0.8),
    "mnist_mlp": (size(128, 4), 0.5),
    "resnet50": (size(256, 2), 1.0),
    "gpt2_small": (size(8, 2), 1.1),
    "lstm": (size(64, 2), 1.2),
}
SOURCES = Path(toolkit.__file__).parent
# The path of a file; a compiled case is measured after the file exists.
START_FILE = "GPU_SPEED_TURN"
# Disk caches of compiled code of the libraries.
CACHES = (
    "TOOLKIT_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "CUDA_CACHE_PATH",  # of the driver and of NVRTC
)
LENGTH, WIDTH, HEADS, DEPTH = size((1024, 768, 12, 12), (16, 32, 2, 1))
VOCABULARY = size(50257, 97)
# Extent of the images of ResNet-50, and its classes.
SIDE, CLASSES = size((224, 1000), (32, 10))


def data(case, batch):
    """Return one batch as NumPy arrays."""
    import numpy as np

    rng = np.random.default_rng(0)
    if case in ("cifar_cnn", "resnet50"):
        side, classes = (32, 10) if case == "cifar_cnn" else (SIDE, CLASSES)
        x = rng.random((batch, side, side, 3), dtype="float32")
        return x, rng.integers(0, classes, batch).astype("int32")
    if case == "mnist_mlp":
        x = rng.random((batch, 784), dtype="float32")
        return x, rng.integers(0, 10, batch).astype("int32")
    if case == "lstm":
        x = rng.integers(0, WORDS, (batch, TEXT_LENGTH)).astype("int32")
        return x, rng.integers(0, 2, (batch, 1)).astype("float32")
    tokens = rng.integers(0, VOCABULARY, (2, batch, LENGTH)).astype("int32")
    return tokens[0], tokens[1]


def build(keras, case):
    """Build the network in Keras code, compiled for training."""
    from toolkit.bench import networks

    sparse = keras.losses.SparseCategoricalCrossentropy(from_logits=False)
    if case == "resnet50":
        shape = (SIDE, SIDE, 3)
        model = keras.applications.ResNet50(
            weights=None, input_shape=shape, classes=CLASSES
        )
    elif case == "gpt2_small":
        model = _gpt2(keras)
        sparse = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    else:
        model = getattr(networks, case)(keras)
    loss = "binary_crossentropy" if case == "lstm" else sparse
    model.compile(keras.optimizers.Adam(1e-3), loss)
    return model


def _gpt2(keras):
    """Build GPT-2 small, without dropout."""
    layers = keras.layers

    class Embed(layers.Layer):
        def __init__(self, **options):
            super().__init__(**options)
            self.tokens = layers.Embedding(VOCABULARY, WIDTH)
            self.positions = layers.Embedding(LENGTH, WIDTH)

        def call(self, x):
            return self.tokens(x) + self.positions(keras.ops.arange(LENGTH))

    tokens = keras.Input((LENGTH,), dtype="int32")
    x = Embed()(tokens)
    for _ in range(DEPTH):
        y = layers.LayerNormalization()(x)
        attention = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)
        x = layers.add([x, attention(y, y, use_causal_mask=True)])
        y = layers.Dense(4 * WIDTH, activation="gelu")(layers.LayerNormalization()(x))
        x = layers.add([x, layers.Dense(WIDTH)(y)])
    x = layers.LayerNormalization()(x)
    # As under torch's autocast: the product in half precision, the loss in float32.
    logits = layers.Activation("linear", dtype="float32")(layers.Dense(VOCABULARY)(x))
    return keras.Model(tokens, logits)


def with_keras(module, case, precision):
    """Return a function that runs one step, and one that waits for the device."""
    x, y = data(case, CASES[case][0])
    policy = "mixed_bfloat16" if precision == "bfloat16" else "float32"
    module.config.set_dtype_policy(policy)
    model = build(module, case)
    convert = module.ops.convert_to_tensor
    x, y = convert(x), convert(y)
    losses = []

    def step():
        losses[:] = [model.train_on_batch(x, y)]

    return step, lambda: float(losses[0])


def with_toolkit(case, precision, tuned=False):
    """Return the same for toolkit, without the argument check of `train_on_batch`."""
    import toolkit
    from toolkit.backends import get_backend

    toolkit.config.set_device("gpu:0")
    toolkit.config.set_matmul_precision("tf32")
    toolkit.config.set_autotune(tuned)
    policy = "mixed_bfloat16" if precision == "bfloat16" else "float32"
    toolkit.config.set_dtype_policy(policy)
    x, y = map(toolkit.ops.convert_to_tensor, data(case, CASES[case][0]))
    model = build(toolkit, case)
    model.train_on_batch(x, y)
    run = model.make_train_function()
    return lambda: run((x, y)), get_backend("cupy").device.synchronize


def with_torch(case, precision, compiled):
    """Return a handwritten torch step: channels last, fused Adam, autocast."""
    import gpu_torch
    import torch

    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    x, y = data(case, CASES[case][0])
    step = gpu_torch.step(case, x, y, precision == "bfloat16", compiled)
    return step, torch.cuda.synchronize


def with_jax(case, precision):
    """Return a handwritten JAX step with one jit; float32 is tf32 by default."""
    import gpu_jax

    return gpu_jax.step(case, *data(case, CASES[case][0]), precision == "bfloat16")


def run_library(library, case, precision, profile=""):
    """Measure in this process, and each kernel with `profile`; print JSON."""
    start = BEGUN if library.startswith(OURS) else IMPORTED
    gpu_rehearsal.install()
    watch = profiler_of(library, profile)
    if library.startswith(OURS):
        step, wait = with_toolkit(case, precision, library.endswith("tuned"))
    elif library.startswith("torch"):
        step, wait = with_torch(case, precision, library.endswith("compile"))
    elif library == "jax":
        step, wait = with_jax(case, precision)
    else:
        os.environ["KERAS_BACKEND"] = "jax"
        import keras

        step, wait = with_keras(keras, case, precision)
    step()
    wait()
    first = perf_counter() - start
    for _ in range(WARM_UP):
        step()
    wait()
    _wait_for_start()
    seconds = []
    for _ in range(ROUNDS):
        round_start = perf_counter()
        for _ in range(STEPS):
            step()
        wait()
        seconds.append((perf_counter() - round_start) / STEPS)
    record = {"step": median(seconds), "all": seconds, "first": first}
    print(json.dumps(record), flush=True)
    if profile:
        print(json.dumps(record | {"profile": watch(step)}))


def _wait_for_start():
    """Wait until the measurement of cases that compiled concurrently."""
    path = os.environ.get(START_FILE)
    if path:
        Path(f"{path}.ready").touch()
        while not Path(path).exists():
            sleep(0.02)


def profiler_of(library, profile):
    """Return the profiler of a step, if requested."""
    if not profile:
        return None
    import gpu_profile

    is_ours = library.startswith(OURS)
    return gpu_profile.Watch().calls if is_ours else gpu_profile.profile_torch


def measure(
    case,
    precision,
    seconds=float("inf"),
    save=lambda row: None,
    libraries=tuple(name for name in LIBRARIES if name != COMPILED),
    profile="",
):
    """Return the step time of each library.

    Args:
        case, precision: one of `gpu_table.RUNS`.
        seconds: the time limit; after it no library starts or continues.
        save: receives the row after each library.
        libraries: the keys of `gpu_table.LIBRARIES` to measure.
        profile: whether to profile a step, if the library supports it.
    """
    keep_bytecode()
    end = perf_counter() + seconds
    row = {"case": case, "precision": precision, "bar": CASES[case][1]}
    for library in libraries:
        needed = LIBRARIES[library]
        absent = [name for name in needed if find_spec(name) is None]
        remaining = end - perf_counter()
        # A rehearsal has no GPU for peers, and toolkit needs none.
        if gpu_rehearsal.is_on() and not library.startswith(OURS):
            row[library] = "a rehearsal"
        elif absent and not gpu_rehearsal.is_on():
            row[library] = f"not installed: {', '.join(absent)}"
        elif remaining < MINIMUM:
            row[library] = "not begun: no time was left"
        else:
            row[library] = _ask(
                library, case, precision, min(LIMIT, remaining), profile
            )
        if library == OURS and isinstance(row[library], str):
            row["failed"] = row[library]
        save(row)
    return row


def keep_bytecode():
    """Compile our sources to bytecode, as pip has done for the peers."""
    compileall.compile_dir(SOURCES, quiet=1)


def compiled(save, seconds):
    """Return the step times of torch.compile, which takes minutes to compile.

    All cases compile concurrently, and are measured in sequence.

    Args:
        save: receives the rows by case and precision after each new one.
        seconds: the time limit of compilation.
    """
    end, rows = perf_counter() + seconds, {}
    with tempfile.TemporaryDirectory() as folder:
        started = {run: _start_compilation(Path(folder), *run) for run in RUNS}
        try:
            while perf_counter() < end - PAUSE * len(started) and any(
                process.poll() is None and not Path(f"{path}.ready").exists()
                for path, process in started.values()
            ):
                sleep(0.5)
            for path, process in started.values():
                if not Path(f"{path}.ready").exists() and process.poll() is None:
                    # it would disturb other measurements
                    os.killpg(process.pid, SIGKILL)
            for (path, process), run in zip(started.values(), started, strict=True):
                rows[" ".join(run)] = _measure_compiled(path, process)
                save(rows)
        finally:
            for _, process in started.values():
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, SIGKILL)
                process.wait()
    return rows


def _start_compilation(folder, case, precision):
    """Start a compiling process; return its start file for the measurement, and it."""
    path = folder / f"{case}-{precision}"
    variables = {name: f"{path}-{name}" for name in CACHES} | {START_FILE: str(path)}
    command = [sys.executable, __file__, COMPILED, case, precision]
    with open(f"{path}.out", "w", encoding="utf-8") as out:
        return path, subprocess.Popen(
            command,
            env={**os.environ, **variables},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _measure_compiled(path, process):
    """Return the results of a process that may measure now, or the error."""
    path.touch()
    try:
        process.wait(PAUSE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, SIGKILL)
    if process.wait() == -SIGKILL:
        return "not done in the time that there was"
    output = Path(f"{path}.out").read_text("utf-8", "replace")
    return _figures(output) or output.strip()[-300:]


def _figures(output):
    """Return the last results that a process has printed; None if there are none."""
    rows = [line for line in output.splitlines() if line.startswith('{"step"')]
    return json.loads(rows[-1]) if rows else None


def _ask(library, case, precision, limit, profile=""):
    """Return the output of a process that measures a library with empty caches."""
    command = [sys.executable, __file__, library, case, precision, profile]
    with tempfile.TemporaryDirectory() as folder:
        fresh = {name: f"{folder}/{name}" for name in CACHES}
        try:
            process = subprocess.run(
                command,
                env={**os.environ, **fresh},
                capture_output=True,
                text=True,
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"longer than {limit:.0f} s"
    figures = _figures(process.stdout)
    if figures is None:
        return process.stderr.strip()[-1500:] or "failed"
    if process.returncode:  # the profile
        figures["failed"] = process.stderr.strip()[-1500:]
    return figures


if __name__ == "__main__":
    run_library(*sys.argv[1:])
