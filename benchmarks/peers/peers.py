"""The suite on toolkit and on its peers, all in one run.

    benchmarks/peers/make_peers.sh ../peers
    python benchmarks/peers/peers.py --peers ../peers --write docs/benchmarks.md

The same Keras code runs on toolkit and on Keras with TensorFlow, torch and JAX. torch
also runs a handwritten loop, eager and compiled. Each has a separate process for each
workload, and they alternate. The script prints medians, the ratio of our result to the
best peer's, and whether that reaches its bar. `--quick` runs toolkit alone, in seconds.
"""

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

from peers_table import render
from peers_worker import PEERS

from toolkit.bench import suite

WORKER = Path(__file__).resolve().parent / "peers_worker.py"


def parse():
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    suite.add_options(parser)
    parser.add_argument("--peers", metavar="DIR", help="what make_peers.sh has made")
    parser.add_argument(
        "--here", action="store_true", help="the peers that this Python has, instead"
    )
    parser.add_argument("--write", metavar="PATH", help="where to write the tables")
    parser.add_argument(
        "--note", default="", help="a sentence for them: the date, what else ran"
    )
    options = parser.parse_args()
    if not (options.quick or options.peers or options.here):
        parser.error("expected --peers DIR, the folder that make_peers.sh has made")
    if options.write and (
        options.quick or options.only or options.here or options.busy
    ):
        parser.error(
            "--write needs the whole run, without --quick, --only, --here and --busy"
        )
    return options


def candidates(options):
    """Return toolkit and, unless the run is a quick one, each peer."""
    yield suite.OURS
    for name, peer in {} if options.quick else PEERS.items():
        python = interpreter(name, peer, options)
        if python is not None:
            command = (python, str(WORKER), name)
            yield suite.Candidate(name, command, peer.kinds, peer.environment)


def interpreter(name, peer, options):
    """Return the Python of a peer; None if this Python lacks the library."""
    if options.here:
        needed = (peer.folder, *(("keras",) if name.startswith("Keras") else ()))
        return sys.executable if all(map(find_spec, needed)) else None
    python = Path(options.peers) / peer.folder / "bin" / "python"
    if not python.exists():
        sys.exit(f"{name}: {python} is missing; see benchmarks/peers/make_peers.sh")
    return str(python)


def main():
    """Measure, print, write; return 1 if toolkit could not be measured."""
    options = parse()
    record = suite.run(list(candidates(options)), options)
    if options.write:
        Path(options.write).write_text(render(record, options.note), "utf-8")
    failures = suite.describe_failures(record)
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
