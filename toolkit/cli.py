"""The command line: `python -m toolkit COMMAND`, and `--help` for each.

A command is a module with `add_options(parser)` and `run(options)`, which returns the
exit code; its first line of documentation says what it does. It is imported when it is
called, and not before.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

import toolkit
from toolkit.errors import ToolkitError

PROGRAM = "python -m toolkit"

# Name -> (module, what it does).
COMMANDS = {
    "bench": ("toolkit.bench.command", "time training, prediction, start and memory"),
}

OK, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code.

    0: done; 1: it failed, and standard error says why; 2: wrong arguments; 130:
    interrupted. Errors that are not the user's keep their traceback.
    """
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.command is None:
        parser.print_help(sys.stderr)
        return WRONG_USAGE
    command = import_module(COMMANDS[chosen.command][0])
    program = f"{PROGRAM} {chosen.command}"
    options = argparse.ArgumentParser(prog=program, description=command.__doc__)
    command.add_options(options)
    try:
        return command.run(options.parse_args(chosen.arguments))  # type: ignore[no-any-return]
    except (ToolkitError, OSError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    rows = [f"  {name:12}{summary}" for name, (_, summary) in COMMANDS.items()]
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(["commands:", *rows]),
    )
    parser.add_argument(
        "--version", action="version", version=f"toolkit {toolkit.__version__}"
    )
    parser.add_argument("command", nargs="?", choices=COMMANDS, metavar="COMMAND")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the command")
    return parser
