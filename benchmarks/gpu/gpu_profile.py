"""GPU profile of a training step, kernel by kernel.

For toolkit, each call of the program is captured alone, several times in a row, and
timed by events, so that launch overhead and waits do not count. For peers, torch's
profiler reports the kernels.
"""

from collections import defaultdict
from functools import partial

from gpu_rehearsal import is_on

# Repetitions of a call in its graph, and the maximum number of rows.
TIMES, ROWS = 10, 150


class Watch:
    """Recorder of all programs that are bound to memory."""

    def __init__(self):
        from toolkit.backends.cupy.program import GpuProgram

        self.runners, bind = [], GpuProgram.bind

        def remembered(program, *arguments):
            self.runners.append(bind(program, *arguments))
            return self.runners[-1]

        GpuProgram.bind = remembered

    def calls(self, step):
        """Return the largest program's calls, in order, each with its microseconds."""
        if is_on():
            return []
        step()
        runner = max(self.runners, key=lambda r: len(r.program.nodes))
        device, names = runner.device, [node.name for node in runner.program.nodes]
        with device.scope(), device.failing():
            return [
                (names[node], _describe_call(call), 1e6 * _seconds(device, call))
                for node, call in runner._bound().calls
            ]


def _seconds(device, call):
    events = device.cupy.cuda.Event(), device.cupy.cuda.Event()

    def repeat():
        for _ in range(TIMES):
            call()

    replay = device.capture(repeat)
    replay()  # the first launch loads the modules
    events[0].record(device.stream)
    replay()
    events[1].record(device.stream)
    events[1].synchronize()
    spent = device.cupy.cuda.get_elapsed_time(*events)
    return 1e-3 * spent / TIMES


def _describe_call(call):
    """Return the name of a call: a kernel with its grid, a product, or a graph."""
    if not isinstance(call, partial):
        return f"{call.kernel.name} {call.grid} {call.block}"
    plan = call.func
    if hasattr(plan, "signature"):
        signature = plan.signature
        shapes = (t.shape for t in signature.tensors if t.uid)
        text = " ".join("x".join(map(str, shape)) for shape in shapes)
        ops = "+".join(node.op for node in signature.nodes)
        return f"cudnn {ops} {signature.dtype} {text} workspace {plan.workspace}"
    cells = [cell.cell_contents for cell in getattr(plan, "__closure__", None) or ()]
    gemms = [c.gemm for c in cells if hasattr(c, "gemm")]
    return str(gemms[0]) if gemms else repr(plan)


def profile_torch(step):
    """Return the kernels of a torch step: counts and total microseconds."""
    import torch

    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        step()
        torch.cuda.synchronize()
    totals = defaultdict(lambda: [0, 0.0])
    for event in profile.events():
        row = totals[event.name[:160]]
        row[0] += 1
        row[1] += event.device_time
    rows = ((name, f"{count}x", spent) for name, (count, spent) in totals.items())
    return sorted(rows, key=lambda row: -row[2])[:ROWS]


def table(rows, maximum=40):
    """Return rows as text, equal ones merged, longest first."""
    totals = defaultdict(lambda: [0, 0.0])
    for name, text, spent in rows:
        row = totals[f"{name} | {text}"]
        row[0] += 1
        row[1] += spent
    order = sorted(totals.items(), key=lambda item: -item[1][1])
    total = sum(spent for _, _, spent in rows)
    lines = [f"{len(rows)} calls, {total / 1e3:.3f} ms"]
    lines += [
        f"{spent:10.1f} us {n:4}x  {name}" for name, (n, spent) in order[:maximum]
    ]
    return "\n".join(lines)
