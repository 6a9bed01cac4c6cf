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

What training and prediction cost beside other libraries, on one machine and in one run.
Written by `benchmarks/peers.py`; do not edit.

## Machine

{machine}

## Time and memory

{workloads}

Medians of {rounds} rounds; ± is half of the range that the middle half of the rounds
has, in percent of the median. *Ratio*: our figure divided by the best peer's: below 1
we are ahead. *To Keras*: the same, with the best of Keras's three. *Bar*: what the
ratio should reach.

## Growth

A stack of convolutions, {base}: how much longer a step takes with twice the batch,
width or depth, divided by how many more FLOPs it has. Bar: {growth_bar}.

{growth}

## Threads

A step of the CIFAR-10 CNN takes {one:.1f} ms on one thread and {two:.1f} ms on two:
{gain:.2f} times as fast (bar: {speed_up_bar}).

## Convolutions

Ours of 3 × 3 with strides of 1 use Winograd's transforms where they are faster, and so
do the gradients of their kernels: most of those of the CIFAR-10 CNN, of the residual
blocks and of the stacks above.
[Training](guides/training.md) says how exact they are, and how to do without.

## GPU

[GPU benchmarks](gpu_benchmarks.md) has steps of training on an H200 beside torch and
JAX. `scripts/gpu_session` measures them, and checks all that only a GPU can show;
`benchmarks/gpu_programs.py` lists what such a step does there, without a GPU.

## How it is measured

- The first table says what each environment holds. For each workload each library has a
  process of its own. They take turns, and each round begins with another. All may use
  {threads} threads.
- *Keras* runs the same code as toolkit, `toolkit/bench/networks.py`, with its defaults.
- *torch* is written by hand: channels last, fused optimizers, losses of logits, batches
  shuffled in memory, loss and accuracy kept. *torch.compile* compiles forward pass and
  loss. tf.function and jax.jit are written by hand too.
- `fit`: the seconds of an epoch, from its first callback to its last, over its steps,
  after an epoch that compiles and warms up. The data are made up, and in memory.
- `predict`: from NumPy array to NumPy array. `model(x)`: nothing records gradients.
- Start: from before the import to the end of the first step, in a fresh process. *Cold*
  is an empty cache of compiled code, *warm* one that a process before has filled, the
  peers' own caches too; Python's bytecode is there in both. torch.compile takes half a
  minute to start, and is left out.
- Memory: the most bytes that a process had resident in two epochs, 25 MB of them data.

To repeat it:

<!-- not run: it installs other libraries and takes an hour -->
```sh
benchmarks/make_peers.sh ../peers
python benchmarks/peers.py --peers ../peers --rounds {rounds} --threads {threads} \\
  --write docs/benchmarks.md
```

`python -m toolkit bench` runs toolkit's side alone.
"""


def render(record, note=""):
    """Return the page, from the record of a whole run."""
    rows = {row["case"]: row for row in record["rows"]}
    threads = rows["speed_up"]
    gain = report.speed_up(threads)
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
    heads = ("workload", "unit", *COLUMNS, "others", "ratio", "to Keras", "bar", "")
    yield f"| {' | '.join(heads)} |"
    yield f"|---|---|{'---:|' * (len(heads) - 3)}---|"
    for name, workload in WORKLOADS.items():
        row, kind = rows[name], KINDS[workload.kind]
        scaled = {who: value * kind.scale for who, value in row["median"].items()}
        rest = [who for who in scaled if who not in COLUMNS]
        others = [f"{who} {figure(row, who, scaled[who])}" for who in rest]
        verdict = report.verdict(row)
        cells = [
            workload.title,
            kind.unit,
            *(figure(row, column, scaled.get(column)) for column in COLUMNS),
            ", ".join(others),
            *(quotient(report.ratio(row, family)) for family in ("", "Keras")),
            f"{workload.bar:.2f}",
            "" if verdict is None else "met" if verdict.met else "missed",
        ]
        yield f"| {' | '.join(cells)} |"


def growth_lines(row):
    """Return the table of growth."""
    yield "| | ms a step | time / FLOPs | |"
    yield "|---|---:|---:|---|"
    found = report.growth(row)
    for name, seconds in row["median"].items():
        verdict = found.get(name)
        judged = ("", "")
        if verdict:
            judged = (f"{verdict.figure:.2f}", "met" if verdict.met else "missed")
        yield f"| {name} | {seconds * 1e3:.2f} | {' | '.join(judged)} |"


def number(value):
    """Return a number with about three digits; empty for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def figure(row, who, value):
    """Return a median and its spread; empty for None."""
    if value is None:
        return ""
    return f"{number(value)} ±{report.spread(row, who):.0%}"


def quotient(value):
    """Return a number with two decimals; empty for None."""
    return "" if value is None else f"{value:.2f}"
