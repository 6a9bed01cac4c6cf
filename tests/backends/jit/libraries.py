"""Models as native libraries: their sources, C callers, and the JIT's results."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import toolkit
from toolkit import layers
from toolkit.backends.library import (
    Library,
    LibraryProgram,
    LibrarySource,
    LibraryTensor,
    LibraryWeight,
)
from toolkit.backends.target import Target
from toolkit.compiler.execute import Executable
from toolkit.compiler.pipeline import compile_program
from toolkit.core.tensor import backend
from toolkit.core.trace import Trace
from toolkit.ir import Spec


def mlp():
    """Of three products."""
    return toolkit.Sequential(
        [
            layers.Input((784,)),
            layers.Dense(512, activation="relu"),
            layers.Dense(512, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )


def cifar():
    """Of convolutions and poolings."""
    return toolkit.Sequential(
        [
            layers.Input((32, 32, 3)),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(512, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )


def lstm():
    """Of loops."""
    return toolkit.Sequential(
        [
            layers.Input((80, 64)),
            layers.LSTM(128, return_sequences=True),
            layers.LSTM(128),
            layers.Dense(10, activation="softmax"),
        ]
    )


MODELS = {"mlp": mlp, "cifar": cifar, "lstm": lstm}


def source_of(
    function: Any,
    specs: Sequence[tuple[tuple[int, ...], str]],
    batches: Sequence[int] = (1,),
    name: str | None = None,
    prefix: str = "m",
    **options: Any,
) -> LibrarySource:
    """Return the source of a library for a function of tensors.

    Args:
        function: takes tensors, and returns a tensor or a tuple.
        specs: shapes of the inputs without the batch, and dtypes.
        batches: the batch sizes.
        name: the name of the processor.
        prefix: the prefix of the functions.
        options: `threads` and `embed`.
    """
    processors = backend().generator.processors(name, options.pop("threads", False))
    weights: dict[Any, int] = {}
    programs, outputs = [], []
    for batch in batches:
        with Trace("m", creates_variables=False) as trace:
            xs = [trace.placeholder(Spec((batch, *s), d)) for s, d in specs]
            results = function(*xs)
            ys = results if isinstance(results, tuple) else (results,)
            ys = [trace.localize(y) for y in ys]
        variables, written = list(trace.captures), list(trace.writes)
        graph = trace.finish([*ys, *trace.writes.values()])
        numbers = [weights.setdefault(v, len(weights)) for v in variables]
        changed = [weights.setdefault(v, len(weights)) for v in written]
        read = {id(v): len(xs) + i for i, v in enumerate(variables)}
        updates = [(len(ys) + i, read.get(id(v))) for i, v in enumerate(written)]
        changing = set(map(id, written))
        frozen = [number for v, number in read.items() if v not in changing]
        target = Target(backend(), updates=updates, frozen=frozen)
        bodies = [
            compile_program(graph, replace(target, processor=processor))
            for processor in processors
        ]
        programs.append(LibraryProgram(batch, bodies, numbers, changed))
        outputs = [
            LibraryTensor(f"y{i}", y.dtype, (-1, *y.shape[1:]))
            for i, y in enumerate(ys)
        ]
    return LibrarySource(
        prefix=prefix,
        programs=programs,
        inputs=[LibraryTensor(f"x{i}", d, (-1, *s)) for i, (s, d) in enumerate(specs)],
        outputs=outputs,
        weights=[
            LibraryWeight(f"w{i}", np.array(v), i in changed)
            for v, i in weights.items()
        ],
        processors=processors,
        **options,
    )


def by_jit(
    source: LibrarySource, batch: int, *inputs: Any, body: int = -1
) -> list[Any]:
    """The outputs of the same program in this process."""
    (program,) = [p for p in source.programs if p.batch == batch]
    weights = [source.weights[i].array for i in program.weights]
    graph = program.bodies[body].source
    first, changed = len(graph.inputs) - len(weights), {*program.updates}
    frozen = [
        first + i for i, weight in enumerate(program.weights) if weight not in changed
    ]
    target = Target(backend(), processor=source.processors[body], frozen=frozen)
    compiled = compile_program(graph, target)
    outputs = Executable(compiled)([*inputs, *weights])
    return [np.array(y) for y in outputs]


def blob(library: Library) -> bytes:
    """Return the weights in their stored form."""
    return b"".join(
        np.ascontiguousarray(w.weight.array).tobytes() for w in library.weights
    )


class Loaded:
    """A shared library, called by ctypes."""

    def __init__(self, library: Library, folder: Path) -> None:
        self.library = library
        at = folder / f"{library.prefix}.o"
        at.write_bytes(library.code)
        shared = at.with_suffix(".so")
        compiler = shutil.which("cc")
        assert compiler is not None
        subprocess.run([compiler, "-shared", "-o", shared, at], check=True)
        self.so = ctypes.CDLL(str(shared))
        self.weights = np.frombuffer(blob(library) or b"\0", np.uint8)
        for name, kind in (
            ("workspace_size", ctypes.c_size_t),
            ("message", ctypes.c_char_p),
        ):
            self.function(name).restype = kind

    def function(self, name: str) -> Any:
        """By its name without the prefix."""
        return getattr(self.so, f"{self.library.prefix}_{name}")

    def workspace(self, capacity: int = 0) -> Any:
        """Return memory that is initialized for batches of at most `most` rows."""
        size = self.function("workspace_size")(ctypes.c_int64(capacity))
        memory = np.full(size, 0xA5, np.uint8)
        arguments = (
            None if self.library.embeds else ctypes.c_void_p(self.weights.ctypes.data)
        )
        status = self.function("init")(
            ctypes.c_void_p(memory.ctypes.data), arguments, ctypes.c_int64(capacity)
        )
        assert status == 0
        return memory

    def run(self, memory: Any, n: int, *inputs: Any) -> tuple[int, list[Any]]:
        """The status, and the outputs."""
        outputs = [np.full((n, *y.shape[1:]), 0, y.dtype) for y in self.library.outputs]
        ins = (ctypes.c_void_p * len(inputs))(*(x.ctypes.data for x in inputs))
        outs = (ctypes.c_void_p * len(outputs))(*(y.ctypes.data for y in outputs))
        status = self.function("run")(
            ctypes.c_void_p(memory.ctypes.data), ctypes.c_int64(n), ins, outs
        )
        return status, outputs
