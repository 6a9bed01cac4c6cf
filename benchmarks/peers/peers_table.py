"""Generator of docs/benchmarks.md from the record of a run of peers.py."""

from toolkit.bench import report
from toolkit.bench.measure import KINDS
from toolkit.bench.workloads import GROWTH_BAR, SPEED_UP_BAR, STACKS, WORKLOADS

COLUMNS = (
    *(report.OURS, "Keras/TensorFlow", "Keras/torch", "Keras/JAX"),
    *("torch", "torch.compile"),
)
PAGE = """\
# Benchmarks

Time and memory of training and inference in toolkit, Keras, TensorFlow, torch and JAX,
from one run on one machine. `benchmarks/peers/peers.py` writes this page; do not edit
it.

## Machine

{machine}

## Time and memory

{workloads}

The figures are medians of {rounds} rounds.

- *±*: half of the interquartile range, in percent of the median.
- *Ratio*: the figure of toolkit divided by the best figure of the other libraries.
  Below 1 toolkit is better.
- *To Keras*: the same, with the best backend of Keras.
- *Bar*: the target of the ratio.

## Growth

This table shows how the time of a step grows with the batch, width or depth of a
network. The network is a stack of convolutions, {base}. The third column is the growth
of the time divided by the growth of the FLOPs. The bar is {growth_bar}.

{growth}

## Threads

A step of the CIFAR-10 CNN takes {one:.1f} ms on one thread and {two:.1f} ms on two. The
speed-up is {gain:.2f} (bar: {speed_up_bar}).

## Convolutions

In toolkit, 3 × 3 convolutions with strides of 1 use Winograd transforms where these are
faster, as do the gradients of their kernels. This applies to most convolutions of the
CIFAR-10 CNN, of the residual blocks and of the stacks above.
[Training](guides/training.md) describes their precision, and how to disable them.

## GPU

[GPU benchmarks](gpu_benchmarks.md) compares training steps on an H200 with torch and
JAX. `scripts/gpu_session` runs these benchmarks and the tests that need a GPU.
`benchmarks/gpu/gpu_programs.py` lists the calls of such a step, without a GPU.

## Method

- The first table lists the packages of each environment. For each workload, each
  library runs in a separate process. The processes alternate, and each round starts
  with another library. Each process may use {threads} threads.
- *Keras* runs the same code as toolkit, `toolkit/bench/networks.py`, with its defaults.
- *torch* is hand-written: channels last, fused optimizers, losses of logits, batches
  shuffled in memory, loss and accuracy computed. *torch.compile* compiles the forward
  pass and the loss. tf.function and jax.jit are hand-written too.
- `fit`: the time of an epoch, from its first callback to its last, divided by its
  number of steps. An epoch before it compiles and warms up. The data is synthetic and
  in memory.
- `predict`: from NumPy array to NumPy array. `model(x)`: without a gradient tape.
- Start: from before the import to the end of the first step, in a new process. *Cold*
  is an empty compilation cache. *Warm* is a cache that an earlier process has filled,
  also for the other libraries. Python bytecode is cached in both cases. torch.compile
  needs half a minute to start, and is not included.
- Memory: the peak resident memory of a process in two epochs, which includes 25 MB of
  data.

To repeat the run:

<!-- not run: it installs other libraries and takes an hour -->
```sh
benchmarks/peers/make_peers.sh ../peers
python benchmarks/peers/peers.py --peers ../peers \\
  --rounds {rounds} --threads {threads} \\
  --write docs/benchmarks.md
```

`python -m toolkit bench` runs only the workloads of toolkit.
"""


def render(record, note=""):
    """Return the page, from the record of a whole run."""
    rows = {row["case"]: row for row in record["rows"]}
    threads = rows["speed_up"]
    gain = report.speed_up_verdict(threads)
    return PAGE.format(
        machine=machine(record, note),
        workloads="\n".join(workload_lines(rows)),
        rounds=record["rounds"],
        base="{2} of {1} channels on images of 16 × 16, batch {0}".format(
            *STACKS["base"]
        ),
        growth_bar=GROWTH_BAR,
        growth="\n".join(growth_lines(rows["growth"])),
        one=threads["median"]["1"] * 1e3,
        two=threads["median"]["2"] * 1e3,
        gain=gain.figure,
        speed_up_bar=SPEED_UP_BAR,
        threads=record["threads"],
    )


def machine(record, note):
    """Return the CPU, the system, and the packages of each environment."""
    facts = record["machine"]
    lines = [
        f"{facts['cpu']}, {facts['cores']} cores, {facts['system']}. {note}".strip(),
        "",
        "| | Python | packages |",
        "|---|---|---|",
    ]
    for name, about in record["candidates"].items():
        packages = dict(about["packages"])
        if name == report.OURS:
            packages = {report.OURS: record["toolkit"]} | packages
        listed = ", ".join(f"{package} {v}" for package, v in packages.items())
        lines.append(f"| {name} | {about['python']} | {listed} |")
    return "\n".join(lines)


def workload_lines(rows):
    """Return the table of workloads."""
    heads = ("workload", "unit", *COLUMNS, "other", "ratio", "to Keras", "bar", "")
    yield f"| {' | '.join(heads)} |"
    yield f"|---|---|{'---:|' * (len(heads) - 3)}---|"
    for name, workload in WORKLOADS.items():
        row, kind = rows[name], KINDS[workload.kind]
        scaled = {name: value * kind.scale for name, value in row["median"].items()}
        uncolumned = [name for name in scaled if name not in COLUMNS]
        remaining_texts = [
            f"{name} {figure(row, name, scaled[name])}" for name in uncolumned
        ]
        verdict = report.ratio_verdict(row)
        cells = [
            workload.title,
            kind.unit,
            *(figure(row, column, scaled.get(column)) for column in COLUMNS),
            ", ".join(remaining_texts),
            *(quotient(report.ratio(row, family)) for family in ("", "Keras")),
            f"{workload.bar:.2f}",
            "" if verdict is None else "met" if verdict.is_met else "missed",
        ]
        yield f"| {' | '.join(cells)} |"


def growth_lines(row):
    """Return the table of growth."""
    yield "| | ms a step | time / FLOPs | |"
    yield "|---|---:|---:|---|"
    growth = report.growth_verdicts(row)
    for name, seconds in row["median"].items():
        verdict = growth.get(name)
        judged = ("", "")
        if verdict:
            judged = (f"{verdict.figure:.2f}", "met" if verdict.is_met else "missed")
        yield f"| {name} | {seconds * 1e3:.2f} | {' | '.join(judged)} |"


def number(value):
    """Return a number with about three digits; empty for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def figure(row, name, value):
    """Return a median and its spread; empty for None."""
    if value is None:
        return ""
    return f"{number(value)} ±{report.relative_spread(row, name):.0%}"


def quotient(value):
    """Return a number with two decimals; empty for None."""
    return "" if value is None else f"{value:.2f}"
