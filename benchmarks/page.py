"""Generator of docs/more_benchmarks.md from the records of the smaller benchmarks.

    python benchmarks/cpu/inference.py --threads 2 --peer-python PYTHON --json a.json
    python benchmarks/page.py a.json b.json --write docs/more_benchmarks.md

Each record becomes a table: the median of each candidate in each case, its spread, and
the ratio of the first candidate's median to the best peer's.
"""

import argparse
import ast
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent / "peers"))

from peers_table import figure, quotient

FOLDER = Path(__file__).resolve().parent
PAGE = """\
# More benchmarks

Time and memory of inference, quantization, bfloat16, embeddings and text generation,
compared with specialized libraries. `benchmarks/page.py` writes this page; do not edit
it. [Benchmarks](benchmarks.md) compares training. Each library runs in a separate
process, and the processes alternate.

There are two pages: for [a processor of AMD](more_benchmarks.md) with AVX-512, VNNI and
dot products of bfloat16, and for [a processor of Intel](more_benchmarks_amx.md) with
AMX too.

{machine}

{tables}
The figures are medians; ± is half of the interquartile range, in percent of the median.
*Ratio*: the first column divided by the best of the other libraries. Below 1 toolkit is
better. Times are in milliseconds. Memory is a multiple of the weights and moments.
"""


def main():
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", nargs="+", metavar="JSON", type=Path)
    parser.add_argument("--write", metavar="PATH", type=Path, required=True)
    parser.add_argument("--note", default="", help="the date, what else ran")
    options = parser.parse_args()
    records = [json.loads(path.read_text("utf-8")) for path in options.records]
    options.write.write_text(render(records, options.note), "utf-8")


def render(records, note=""):
    """Return the page, from records of one machine."""
    facts = records[0]["machine"]
    machine = f"{facts['cpu']}, {facts['cores']} cores, {facts['system']}. {note}"
    tables = "\n".join(table(record) for record in records)
    return PAGE.format(machine=machine.strip(), tables=tables)


def table(record):
    """Return a heading from the script's first line, its versions, and its cases."""
    script = next(FOLDER.rglob(Path(record["script"]).name))
    tree = ast.parse(script.read_text("utf-8"))
    title = ast.get_docstring(tree).splitlines()[0].rstrip(".")
    rows = record["rows"]
    names = list(dict.fromkeys(name for row in rows for name in row["median"]))
    heads = ("case", *names, "ratio")
    lines = [f"## {title}", "", f"| {' | '.join(heads)} |"]
    lines.append(f"|---|{'---:|' * (len(heads) - 1)}")
    for row in rows:
        scale = 1.0 if row["case"].endswith("memory") else 1e3
        scaled = {name: scale * value for name, value in row["median"].items()}
        cells = [figure(row, name, scaled.get(name)) for name in names]
        cells.append(quotient(ratio(record, row, names[0])))
        lines.append(f"| {' | '.join((row['case'], *cells))} |")
    ran = f"`benchmarks/{script.relative_to(FOLDER).as_posix()}`"
    if "threads" in record:
        ran += f" on {record['threads']} threads"
    return "\n".join([*lines, "", f"{ran}{versions(record)}.", ""])


def ratio(record, row, ours):
    """Return the ratio of our median to the best peer's, if both exist."""
    peers = record.get("peers", [name for name in row["median"] if name != ours])
    medians = [row["median"][name] for name in peers if name in row["median"]]
    return (
        row["median"][ours] / min(medians)
        if medians and ours in row["median"]
        else None
    )


def versions(record):
    """Return the packages that took part, once each."""
    versions_by_library = {}
    for about in record.get("candidates", {}).values():
        versions_by_library |= about["packages"]
    listed = ", ".join(
        f"{name} {number}" for name, number in sorted(versions_by_library.items())
    )
    return f", with {listed}" if listed else ""


if __name__ == "__main__":
    main()
