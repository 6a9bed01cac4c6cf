"""Composition of a training step of gpu_speed.py on a GPU, computed without a GPU.

The script compiles the steps as far as possible without a device. For each group of
equal steps, it prints the memory traffic and operations. The times are lower bounds by
the roofline of an H200: nothing is measured, and the sum of the bounds is not
attainable.

Example:
    $ python benchmarks/gpu/gpu_programs.py resnet50 bfloat16 --rows 30
"""

import argparse
import math
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2]))

import gpu_speed
import gpu_table

import toolkit
from toolkit import dtypes
from toolkit.backends import registry
from toolkit.backends.cupy.backend import CupyBackend
from toolkit.backends.cupy.cuda.launch import Buffer, Launch, Scratch, Table
from toolkit.backends.cupy.device import Device
from toolkit.backends.cupy.steps import Dnn, Loop, Product

# Peak bytes per second and tensor core operations per second of an H200; seconds per
# launch inside a captured graph.
BANDWIDTH, LAUNCH = 4.3e12, 2.5e-6
PEAKS = {"bfloat16": 700e12, "float16": 700e12, "float32": 400e12, "float64": 60e12}


class PlanDevice(Device):
    """Device for planning only; it cannot compute."""

    captures = True
    libraries = frozenset({"cublaslt", "cudnn"})

    def empty(self, shape, dtype):
        # Untouched pages need no physical memory.
        return np.empty(shape, dtypes.numpy_dtype(dtype))

    def owns(self, array):
        return isinstance(array, np.ndarray)

    def upload(self, values):
        return np.asarray(values)

    def address(self, array):
        return array.ctypes.data

    def view(self, arena, offset, shape, dtype):
        return np.ndarray(shape, dtypes.numpy_dtype(dtype), arena, offset)

    def memory(self):
        return "no memory"

    def load(self, kernels):
        return [self._refuse for _ in kernels]

    def product(self, gemm, pointers, workspace):
        return self._refuse

    def dnn(self, signature, workspace):
        return _Plan()

    def _refuse(self, *arguments):
        raise NotImplementedError("a device that is only planned for runs nothing")


# Planning calls only these methods of a device.
PlanDevice.__abstractmethods__ = frozenset()


class _Plan:
    workspace = 0

    def __call__(self, *arguments):
        raise NotImplementedError("plans without a device compute nothing")


@dataclass
class Group:
    """Group of equal steps: their number, traffic, operations, and total seconds."""

    count: int = 0
    nbytes: int = 0
    flops: int = 0
    seconds: float = 0.0


def program_of(case, precision, batch=None):
    """Return the program of a training step, planned for a GPU."""
    registry.register_backend("cupy", lambda: CupyBackend(PlanDevice(), np))
    toolkit.config.set_matmul_precision("tf32")
    policy = "mixed_bfloat16" if precision == "bfloat16" else "float32"
    toolkit.config.set_dtype_policy(policy)
    model = gpu_speed.build(toolkit, case)
    toolkit.config.set_dtype_policy(None)
    x, y = gpu_speed.data(case, batch or gpu_speed.CASES[case][0])
    with toolkit.device("gpu:0"):
        step = toolkit.function(lambda x, y: model.train_step((x, y)))
        return step.get_concrete_function(x, y).program


def groups(program, times=1):
    """Return equal steps of a program as groups, by their labels."""
    by_label = defaultdict(Group)
    for node, lowered in zip(program.graph.nodes, program.lowered, strict=True):
        if lowered is None:
            if node.outputs[0] not in program.layouts.views:
                by_label[f"NOT LOWERED {node.op.name}"].count += times
            continue
        for step in lowered.steps:
            if isinstance(step, Loop):
                for label, group in groups(step.body, times * step.iterations).items():
                    _add(by_label[f"{step.iterations}x {label}"], group)
                continue
            flops, dtype = _flops(step), _dtype(step)
            nbytes = _traffic(program, node, step)
            seconds = LAUNCH + max(nbytes / BANDWIDTH, flops / PEAKS[dtype])
            group = Group(times, times * nbytes, times * flops, times * seconds)
            _add(by_label[label_of(node, step)], group)
    return dict(by_label)


def _add(total, other):
    for name, value in vars(other).items():
        setattr(total, name, getattr(total, name) + value)


def _flops(step):
    if isinstance(step, Product):
        return step.gemm.flops
    return step.signature.flops if isinstance(step, Dnn) else 0


def _dtype(step):
    if isinstance(step, Product):
        return step.gemm.dtypes[0]
    return step.signature.dtype if isinstance(step, Dnn) else "float32"


def _traffic(program, node, step):
    """Return the bytes that a step reads and writes, each operand once."""
    operands = step.arguments if isinstance(step, Launch) else step.operands
    words = [w for p in operands if isinstance(p, Table) for row in p.rows for w in row]
    values = [*node.inputs, *node.outputs]
    total = 0
    for operand in dict.fromkeys((*operands, *words)):
        if isinstance(operand, Buffer):
            value = values[operand.index]
            total += min(value.spec.nbytes, program.layouts[value].root.spec.nbytes)
        elif isinstance(operand, Scratch):
            total += operand.nbytes
    if node.op.name in ("gather", "dynamic_slice"):  # reads only as much as it writes
        total -= max(0, node.inputs[0].spec.nbytes - node.outputs[0].spec.nbytes)
    return total


def label_of(node, step):
    """Return the label that equal steps share."""
    if isinstance(step, Product):
        g = step.gemm
        transposition = "".join("NT"[t] for t in g.transpose)
        shape = "x".join(map(str, (g.batch, g.m, g.n, g.k)))
        return (
            f"cublaslt {shape} {transposition} {g.dtypes[0]}>{g.dtypes[1]} {g.epilogue}"
        )
    if isinstance(step, Dnn):
        ops = "+".join(n.op for n in step.signature.nodes)
        shapes = (t.shape for t in step.signature.tensors if t.uid)
        shapes = " ".join("x".join(map(str, shape)) for shape in list(shapes)[:3])
        return f"cudnn {ops} {step.signature.dtype} {shapes}"
    name = step.kernel.name.rpartition("_")[0]
    names = (
        [n.op.name for n in node.attrs["body"].nodes] if "body" in node.attrs else []
    )
    spec = max((y.spec for y in node.outputs), key=lambda s: s.nbytes)
    names_text = (
        "" if not names else f" {len(names)}: " + ",".join(dict.fromkeys(names))
    )
    return f"{name} {node.op.name} {spec}{names_text}"


def report(case, precision, rows, batch=None):
    """Return the table of a step as text."""
    program = program_of(case, precision, batch)
    by_label = groups(program)
    total = Group()
    for group in by_label.values():
        _add(total, group)
    lines = [f"{case} {precision}: {total.count} steps, {_figures(total)}"]
    lines.append(
        f"arena {program.nbytes / 2**30:.2f} GiB "
        f"(live {program.plan.live_peak / 2**30:.2f}), launches after joining: "
        f"{launches(program)}, in place: {program.in_place}"
    )
    by_kind = defaultdict(Group)
    for label, group in by_label.items():
        _add(by_kind[label.partition(" ")[0]], group)
    order = sorted(by_kind.items(), key=lambda item: -item[1].seconds)
    lines += [f"  {g.count:5} {_figures(g)}  {label}" for label, g in order]
    order = sorted(by_label.items(), key=lambda item: -item[1].seconds)
    lines += [f"  {g.count:5} {_figures(g)}  {label}" for label, g in order[:rows]]
    return "\n".join(lines)


def _figures(g):
    ms, gb, gflop = g.seconds * 1e3, g.nbytes / 1e9, g.flops / 1e9
    return f"{ms:9.3f} ms {gb:8.2f} GB {gflop:9.1f} GFLOP"


def launches(program):
    """Return the number of calls of a captured step, with batched updates."""
    if program.code is None:
        return "not one program"
    values = (*program.graph.inputs, *program.graph.outputs)
    table = program.backend.generator.call_table(
        [v.spec for v in values], program.updated_numbers
    )
    start = 1 << 40  # fake addresses that do not overlap
    for number, value in enumerate(values):
        table[number] = start
        start += math.ceil(value.spec.nbytes / 256 + 1) * 256
    runner = program.code.bind(program.locations.at(1 << 50), table)
    return len(runner._bound().calls)


def main(arguments=None):
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("case", nargs="?", choices=gpu_speed.CASES)
    parser.add_argument("precision", nargs="?", choices=("float32", "bfloat16"))
    parser.add_argument("--rows", type=int, default=25, help="groups to print")
    parser.add_argument("--batch", type=int, help="another batch size")
    options = parser.parse_args(arguments)
    for case, precision in gpu_table.RUNS:
        if options.case in (None, case) and options.precision in (None, precision):
            print(report(case, precision, options.rows, options.batch))


if __name__ == "__main__":
    main()
