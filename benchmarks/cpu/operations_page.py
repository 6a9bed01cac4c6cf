"""Page of the table of operations.py: summary by group and size, and the worst rows."""

import re
from collections import defaultdict
from statistics import median

OURS, PEERS = ("eager", "compiled"), ("torch", "jax", "numpy")
SIZE_NAMES = ("32", "1e5", "1e7")
BARS = (1.0, 1.3, 2.0)
WORST = 25
PAGE = """\
# Operation benchmarks

Time of single operations in toolkit, torch, JAX and NumPy: eager and compiled, forward
and gradient, with 32, 1e5 and 1e7 elements. `benchmarks/cpu/operations.py` writes this
page; do not edit it. [More benchmarks](more_benchmarks.md) compares whole networks.

{machine}

## Method

All candidates run in one process on one thread, and they alternate, after 160 calls or
0.1 s of each. The times are the CPU time of the process, so other work on the machine
has a small effect. *Ratio*: the median of toolkit divided by the smallest median of
torch (eager), JAX (compiled) and NumPy. Below 1 toolkit is faster. NumPy has no
gradients, and with 32 elements it is no peer, because it has no tensors. JAX runs the
functions that it shares with NumPy. The summary also has the median ratio to torch
alone. The script compares the results and the gradients with the peer.

<!-- not run: it needs torch and JAX, and takes up to an hour -->
```sh
PEERS/bin/python benchmarks/cpu/operations.py --json operations.json
PEERS/bin/python benchmarks/cpu/operations.py --page operations.json \\
  --write docs/operation_benchmarks.md
```

## Summary

{summary}

## Ratios by group

The median ratio of each group, forward / gradient.

{groups}

## Slowest compiled rows

{compiled}

## Slowest eager rows

{eager}

## Limitations

- One thread, one processor, float32 unless the row names another dtype.
- A candidate whose call takes more than 10 ms is left out of the next size.
- torch runs eagerly. `torch.compile` takes seconds for each row.
- `benchmarks/cpu/operations_table.py` lists the operations without a row, and why.
{failures}"""


def ratio(row, candidate):
    """Return the ratio to the best peer, or None."""
    medians = row["median"]
    peers = [
        medians[name]
        for name in PEERS
        if name in medians and (name, row["size"]) != ("numpy", 0)
    ]
    if candidate not in medians or not peers:
        return None
    return medians[candidate] / min(peers)


def title(row):
    """Return the name of a row, with its size."""
    gradient = ", gradient" if row["gradient"] else ""
    return f"{row['case']}{gradient}"


def line(row):
    """Return the medians of a row in microseconds, and its ratios, as text."""
    cells = [f"{name} {value * 1e6:.1f}" for name, value in row["median"].items()]
    ratios = [ratio(row, name) for name in OURS]
    shown = [f"{value:.2f}" for value in ratios if value is not None]
    words = [f"{title(row)} [{SIZE_NAMES[row['size']]}]:", *cells, "ratios", *shown]
    return " ".join([*words, *(f"{k}: {v}" for k, v in row["errors"].items())])


def render(record, note=""):
    """Return the page of a record."""
    facts, rows = record["machine"], record["rows"]
    machine = f"{facts['cpu']}, {facts['cores']} cores, {facts['system']}"
    packages = ", ".join(f"{k} {v}" for k, v in record["packages"].items())
    return PAGE.format(
        machine=f"{machine}, with {packages}. {note}".strip(),
        summary=summary(rows),
        groups=by_group(rows),
        compiled=slowest(rows, "compiled"),
        eager=slowest(rows, "eager"),
        failures=failures(rows),
    )


def table(heads, rows):
    """Return a table whose first column is text."""
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def summary(rows):
    """Return the medians and the shares of slow rows for each size and candidate."""
    lines = []
    for gradient in (False, True):
        for size, name in enumerate(SIZE_NAMES):
            for candidate in OURS:
                chosen = [
                    row
                    for row in rows
                    if (row["gradient"], row["size"]) == (gradient, size)
                ]
                ratios = [ratio(row, candidate) for row in chosen]
                ratios = [value for value in ratios if value is not None]
                if not ratios:
                    continue
                to_torch = [
                    row["median"][candidate] / row["median"]["torch"]
                    for row in chosen
                    if {candidate, "torch"} <= row["median"].keys()
                ]
                shares = [
                    f"{sum(value > bar for value in ratios) / len(ratios):.0%}"
                    for bar in BARS
                ]
                kind = "gradient" if gradient else "forward"
                head = f"{name}, {kind}, {candidate}"
                cells = (str(len(ratios)), f"{median(ratios):.2f}", *shares)
                last = f"{median(to_torch):.2f}" if to_torch else ""
                lines.append((head, *cells, last))
    bars = (f"above {bar}" for bar in BARS)
    heads = ("elements", "rows", "median ratio", *bars, "median to torch")
    return table(heads, lines)


def by_group(rows):
    """Return the median ratio of each group, candidate and size."""
    ratios = defaultdict(list)
    for row in rows:
        for candidate in OURS:
            value = ratio(row, candidate)
            if value is not None:
                key = row["group"], candidate, row["size"], row["gradient"]
                ratios[key].append(value)
    keys = [(name, size) for name in OURS for size in range(len(SIZE_NAMES))]
    heads = [f"{name}, {SIZE_NAMES[size]}" for name, size in keys]
    lines = []
    for group in dict.fromkeys(row["group"] for row in rows):
        cells = []
        for key in keys:
            both = [ratios.get((group, *key, gradient)) for gradient in (False, True)]
            cells.append(" / ".join(f"{median(x):.2f}" if x else "-" for x in both))
        lines.append((group, *cells))
    return table(("group", *heads), lines)


def slowest(rows, candidate):
    """Return the rows with the largest ratios, with their medians in microseconds."""
    measured = [(ratio(row, candidate), row) for row in rows if row["size"]]
    measured = [pair for pair in measured if pair[0] is not None]
    measured.sort(key=lambda pair: -pair[0])
    names = (candidate, *PEERS)
    heads = ("row", "elements", *(f"{name}, µs" for name in names), "ratio")
    lines = []
    for value, row in measured[:WORST]:
        times = [figure(row, name) for name in names]
        lines.append((title(row), SIZE_NAMES[row["size"]], *times, f"{value:.2f}"))
    return table(heads, lines)


def figure(row, name):
    """Return a median in microseconds, and half of the range of its samples."""
    if name not in row["median"]:
        return ""
    samples, middle = row["samples"][name], row["median"][name]
    spread = (max(samples) - min(samples)) / 2 / middle
    return f"{middle * 1e6:,.0f} ±{spread:.0%}"


def short(error):
    """Return the number of different elements in an error, or its first line."""
    found = re.search(r"Mismatched elements: [^)]*\)", error)
    return found[0] if found else error.splitlines()[0]


def failures(rows):
    """Return the rows whose results differ from the peer, as a list."""
    lines = []
    for row in rows:
        for name, error in row["errors"].items():
            candidate, _, kind = name.partition(", ")
            if kind == "check":
                measured = f"{title(row)}, {SIZE_NAMES[row['size']]} elements"
                lines.append(f"- {measured}, {candidate}: {short(error)}")
    if not lines:
        return ""
    return "\n## Different results\n\n" + "\n".join(lines) + "\n"
