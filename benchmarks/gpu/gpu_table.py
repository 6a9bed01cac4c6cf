"""Table of gpu_speed.py; this module imports none of the measured libraries."""

from time import perf_counter

# Approximately the start of this process: importers import this module first.
BEGUN = perf_counter()

# The requirements of each library, in measurement order.
OURS, COMPILED = "toolkit", "torch/compile"
LIBRARIES = {
    OURS: ("cupy",),
    f"{OURS}/tuned": ("cupy",),
    "torch": ("torch",),
    "jax": ("jax",),
    COMPILED: ("torch",),
    "keras/jax": ("keras", "jax"),
}
BAR_OF_COMPILING = 0.3
# Case and precision: float32 is tf32 for all.
RUNS = (
    ("mnist_mlp", "float32"),
    ("cifar_cnn", "float32"),
    ("cifar_cnn", "bfloat16"),
    ("resnet50", "bfloat16"),
    ("gpt2_small", "bfloat16"),
    ("lstm", "float32"),
)


def rows_of(steps):
    """Return the rows of a session's steps, with the results of torch.compile."""
    rows = {}
    for family in ("profile-", "speed-"):  # the second one measures more
        for name, step in steps.items():
            row = step.get("results")
            if name.startswith(family) and row:
                rows[row["case"], row["precision"]] = dict(row)
    compiled = steps.get("compiled", {}).get("results") or {}
    for label, figures in compiled.items():
        key = tuple(label.split())
        if key in rows:
            rows[key][COMPILED] = figures
    return list(rows.values())


def table(rows):
    """Return rows as text: seconds of a step, and the ratios to the best peer."""
    lines = [f"{'case':24} {'library':14} {'ms/step':>9} {'first s':>8}  ratio, bar"]
    for row in rows:
        figures = {n: row[n] for n in LIBRARIES if isinstance(row.get(n), dict)}
        peers = {n: f for n, f in figures.items() if not n.startswith(OURS)}
        for name in LIBRARIES:
            label = f"{row['case']} {row['precision']}"
            if isinstance(row.get(name), str):
                lines.append(f"{label:24} {name:14} {row[name][:60]}")
            elif name in figures:
                took = figures[name]
                line = f"{label:24} {name:14} {took['step'] * 1e3:9.3f} "
                line += f"{took['first']:8.2f}"
                if name.startswith(OURS) and peers:
                    line += "  " + _ratios(took, peers.values(), row["bar"])
                lines.append(line)
    return "\n".join(lines)


def _ratios(ours, peers, bar):
    step = ours["step"] / min(p["step"] for p in peers)
    first = ours["first"] / min(p["first"] for p in peers)
    return f"{step:.2f}, {bar} (first {first:.2f}, {BAR_OF_COMPILING})"
