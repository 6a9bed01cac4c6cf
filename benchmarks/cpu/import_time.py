"""Import time of `import toolkit` compared with `import numpy`, in fresh processes.

    python benchmarks/cpu/import_time.py --runs 21

Budget: 0.20 s on a machine where numpy takes up to 0.10 s. `import toolkit` alone loads
names only, so the imports of a `Sequential` of `Dense` layers are timed too. The runs
alternate, so that a busy moment of the machine affects all.
"""

import argparse
import subprocess
import sys
from statistics import median

MODULES = {
    "numpy": "import numpy",
    "toolkit": "import toolkit",
    "models": "import toolkit; toolkit.Sequential, toolkit.layers.Dense",
}
CODE = (
    "import time; start = time.perf_counter(); {statement};"
    "print(time.perf_counter() - start)"
)


def import_seconds(module: str) -> float:
    """Return the seconds that a fresh process takes to import one of `MODULES`."""
    command = [sys.executable, "-c", CODE.format(statement=MODULES[module])]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(process.stdout)


def main() -> None:
    """Measure them alternately and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=21)
    runs = parser.parse_args().runs
    times: dict[str, list[float]] = {name: [] for name in MODULES}
    for module in times:
        import_seconds(module)  # the first import compiles to bytecode
    for _ in range(runs):
        for module, seconds in times.items():
            seconds.append(import_seconds(module))
    for module, seconds in times.items():
        print(f"{module:8} median {median(seconds):.3f} s of {runs} runs")


if __name__ == "__main__":
    main()
