"""Generator of docs/gpu_benchmarks.md from the records of GPU sessions.

Example:
    $ python benchmarks/gpu/gpu_page.py session.json --write docs/gpu_benchmarks.md
"""

import argparse
import json
from math import ceil, floor, log10
from pathlib import Path
from textwrap import fill

from gpu_table import BAR_OF_COMPILING, COMPILED, LIBRARIES, OURS, rows_of

NAMES = {
    "mnist_mlp": "MNIST MLP 784-512-512-10, batch 128",
    "cifar_cnn": "CIFAR-10 CNN, batch 256",
    "resnet50": "ResNet-50, 224 × 224, batch 256",
    "gpt2_small": "GPT-2 small, 8 × 1,024 tokens",
    "lstm": "LSTM(128) text classifier, sequence 80, batch 64",
}
PRECISIONS = {"float32": "tf32", "bfloat16": "bfloat16"}
SHOWN = tuple(name for name in LIBRARIES if name != "keras/jax")
TUNED = f"{OURS}/tuned"
PAGE = """\
# GPU benchmarks

Time of training steps on one GPU in toolkit, torch and JAX. Each library runs in a
separate process, with data on the device. `benchmarks/gpu/gpu_page.py` writes this page
from the results of `scripts/gpu_session`; do not edit it.

{machine}

## Training step, in milliseconds

{steps}

- The optimizer is Adam, with batch normalization, dropout and random numbers as in
  training.
- *tuned*: with `toolkit.config.set_autotune(True)`.
- toolkit runs Keras code. The code for torch and JAX is hand-written.
- torch uses channels last, fused Adam and `cudnn.benchmark`. JAX uses one `jit` with
  donated buffers, and its batch normalization has no moving averages.
- The figures are medians of 5 rounds of 20 steps.
- *Ratio*: the better figure of toolkit divided by the best of the other libraries.

## From the start of the process to the end of the first step, in seconds

{first}

All compilation caches are empty, including the cache of the driver. A step before
(`read`) has read the files of each library. The time includes imports. `torch.compile`
is not included, because all cases were compiled together.

The time has a bar. It is {bar} of the best peer's:
{first_met} of {cases} rows meet it.

## Precision

{exact}

The table has the largest relative errors of a convolutional network, compared with
float64 on the CPU. The columns are the outputs and the loss, all gradients as one
vector, and the worst single gradient. The limits are in parentheses.

In each precision, and in float16, a run of `fit` gave the same bits for the same seed.
Steps in a captured graph and steps that were launched one by one gave the same bits.
The losses differ from the losses on the CPU by {losses} at most (relative).

{cores}## Tests and benchmarks of this session

{ran}
{note}"""


CORES = """\
## Training step on the CPU of that machine, in milliseconds

{rows}

`benchmarks/peers/peers.py` without the GPU; medians of {rounds} rounds. *Ratio*: the
time of toolkit divided by the better time of torch.

"""


def main():
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", nargs="+", metavar="JSON", type=Path)
    parser.add_argument("--write", metavar="PATH", type=Path, required=True)
    parser.add_argument("--date", default="", help="of the measurement")
    parser.add_argument("--note", default="", help="one more paragraph")
    options = parser.parse_args()
    steps, about = {}, {}
    for path in options.records:
        record = json.loads(path.read_text("utf-8"))
        steps |= record["steps"]
        about |= record["about"]
    page = render(steps, about["machine"], options.date, options.note)
    options.write.write_text(page, "utf-8")


def render(steps, machine, date="", note=""):
    """Return the page, from the steps of sessions on one machine."""
    rows = [row for row in rows_of(steps) if is_whole(row)]
    stages = ("accuracy", "fits")
    if any(steps[name]["outcome"] != "passed" for name in stages):
        raise SystemExit(f"expected steps that have passed: {', '.join(stages)}")
    fits = steps["fits"]["results"]
    losses = max(row["error, limit"][0] for row in fits.values())
    digit = 10.0 ** floor(log10(losses))
    losses = ceil(losses / digit) * digit  # rounded up, for "at most"
    return PAGE.format(
        machine=machine_text(machine, steps, date),
        steps=step_table(rows),
        first=first_table(rows),
        bar=BAR_OF_COMPILING,
        first_met=sum(first_ratio(row) <= BAR_OF_COMPILING for row in rows) or "none",
        cases=len(rows),
        exact=exact_table(steps["accuracy"]["results"]),
        losses=f"{losses:.0e}",
        cores=cores(steps),
        ran=ran(steps),
        note=f"\n{fill(note, 96)}\n" if note else "",
    )


def machine_text(machine, steps, date):
    """Return a paragraph on the GPU, the CPU and the versions."""
    gpu = machine["gpu"]["rows"][0].split(", ")
    system, cudnn = machine["system"], steps["facts"]["results"]["cudnn"]
    installed = machine["pythons"][system["interpreter"]]["distributions"]
    packages = ("numpy", "cupy-cuda13x", "torch", "jax")
    versions = ", ".join(
        f"{name} {installed[name]}" for name in packages if name in installed
    )
    cudnn_text = f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}"
    day = f" Measured on {date}." if date else ""
    return (
        f"{gpu[0]} ({gpu[2]}, driver {gpu[1]}), {system['cores']} cores of "
        f"{system['cpu']}; Python {system['python']}, {versions}, "
        f"cuDNN {cudnn_text}.{day}"
    )


def is_whole(row):
    """Return whether both toolkit and a peer have a result."""
    is_ours = isinstance(row.get(OURS), dict)
    return is_ours and best(row, "step", False) is not None


def best(row, key, of_ours):
    """Return the minimum of a row, of toolkit or of peers; None without any."""
    values = [
        value[key]
        for name, value in row.items()
        if name in SHOWN and isinstance(value, dict) and of_ours == (OURS in name)
    ]
    return min(values, default=None)


def step_table(rows):
    """Return the milliseconds of each library, and the ratio to the best peer."""
    lines = [_line("case", "precision", *SHOWN, "ratio", "bar", "")]
    lines.append(_line(*["---"] * 2, *["---:"] * (len(SHOWN) + 2), "---"))
    for row in rows:
        cells = [_figure(row.get(name), "step", 1e3) for name in SHOWN]
        ratio = best(row, "step", True) / best(row, "step", False)
        verdict = "met" if ratio <= row["bar"] else "missed"
        case = NAMES[row["case"]], PRECISIONS[row["precision"]]
        lines.append(_line(*case, *cells, f"{ratio:.2f}", row["bar"], verdict))
    return "\n".join(lines)


def first_ratio(row):
    """Return the ratio of the time to the first step to the best peer's."""
    peers = (n for n in SHOWN if n not in (OURS, TUNED, COMPILED))
    seconds = [row[n]["first"] for n in peers if isinstance(row.get(n), dict)]
    return row[OURS]["first"] / min(seconds)


def first_table(rows):
    """Return the seconds until the first step is complete."""
    shown = [name for name in SHOWN if name not in (COMPILED, TUNED)]
    lines = [_line("case", "precision", *shown, "ratio")]
    lines.append(_line(*["---"] * 2, *["---:"] * (len(shown) + 1)))
    for row in rows:
        cells = [row.get(name) for name in shown]
        ratio = f"{first_ratio(row):.2f}"
        case = NAMES[row["case"]], PRECISIONS[row["precision"]]
        lines.append(_line(*case, *(_figure(x, "first", 1) for x in cells), ratio))
    return "\n".join(lines)


def exact_table(errors):
    """Return errors and limits by precision."""
    lines = [_line("", "outputs and loss", "all gradients", "worst gradient")]
    lines.append(_line("---", *["---:"] * 3))
    for name, row in errors.items():
        (errors_row,) = (row[key] for key in row if key.startswith("results"))
        pairs = zip(errors_row, row["limits"], strict=True)
        lines.append(_line(name, *(f"{e:.1e} ({limit:.0e})" for e, limit in pairs)))
    return "\n".join(lines)


def cores(steps):
    """Return a section on the machine's CPU, if that was measured."""
    records = [s.get("results") for n, s in steps.items() if n.startswith("cores-")]
    records = [record for record in records if record]
    if not records:
        return ""
    shown = "toolkit", "torch", "torch.compile"
    lines = [_line("workload", "threads", *shown, "ratio")]
    lines.append(_line("---", *["---:"] * (len(shown) + 2)))
    for record in sorted(records, key=lambda r: (r["rows"][0]["case"], r["threads"])):
        (row,) = record["rows"]
        took = {name: row["median"][name] for name in shown}
        ratio = took.pop(shown[0]) / min(took.values())
        cells = (f"{1e3 * row['median'][name]:.2f}" for name in shown)
        lines.append(_line(row["case"], record["threads"], *cells, f"{ratio:.2f}"))
    return CORES.format(rows="\n".join(lines), rounds=records[0]["rounds"])


def ran(steps):
    """Return the other steps, their outcomes, and their numbers of tests."""
    lines = [_line("step", "outcome", "tests passed", "failed")]
    lines.append(_line("---", "---", "---:", "---:"))
    for name, step in steps.items():
        if name.startswith(("speed-", "profile-", "compiled", "cores-")):
            continue
        counts = (step.get("results") or {}).get("counts", {})
        numbers = [counts.get(key, "") for key in ("passed", "failed")]
        lines.append(_line(f"`{name}`", step["outcome"], *numbers))
    return "\n".join(lines)


def _figure(entry, key, scale):
    if not isinstance(entry, dict):
        return "" if entry is None else "–"
    number = entry[key] * scale
    return f"{number:.3f}" if number < 10 else f"{number:.1f}"


def _line(*cells):
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
