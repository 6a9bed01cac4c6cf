"""Command line: `toolkit COMMAND`, or `python -m toolkit COMMAND`.

A command is a module with `add_options(parser)` and `run(options)`, which returns the
exit code. Its docstring is the help text, with usage after a line "Examples:". It is
imported on demand.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import toolkit
from toolkit.errors import ToolkitError, suggest_choice

# Name -> (module, summary).
COMMANDS = {
    "info": ("toolkit.cli.info", "show installed, missing and cached components"),
    "examples": ("toolkit.cli.examples", "list the included example trainers"),
    "run": ("toolkit.cli.run", "run a script or an example"),
    "inspect": ("toolkit.cli.inspect", "show the content of a model or weights file"),
    "convert": (
        "toolkit.cli.convert",
        "write a model or its weights in another format",
    ),
    "export": (
        "toolkit.cli.export",
        "export a model for programs without Python",
    ),
    "plot": ("toolkit.cli.plot", "draw the model of a file"),
    "simulate": (
        "toolkit.cli.simulate",
        "predict the time of a training step on many ranks",
    ),
    "serve": ("toolkit.cli.serve", "serve models over HTTP"),
    "bench": ("toolkit.bench.command", "time training, prediction, start and memory"),
}

OK, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130


def program_name() -> str:
    """Return the text that the user types before the command."""
    executable = Path(sys.argv[0]).stem
    return "toolkit" if executable == "toolkit" else "python -m toolkit"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code.

    0: success; 1: failure, with the reason on standard error; 2: wrong arguments; 130:
    interrupted. A user error is printed as one line, unless `--debug` requests the
    traceback; other errors keep it.
    """
    _replace_unencodable(sys.stdout)
    parser = _create_parser()
    top_options = parser.parse_args(arguments)
    if top_options.command is None:
        parser.print_help(sys.stderr)
        return WRONG_USAGE
    command = import_module(COMMANDS[top_options.command][0])
    name = f"{program_name()} {top_options.command}"
    command_parser = Parser(name, *_split_help(command.__doc__ or ""))
    command.add_options(command_parser)
    _add_debug_option(command_parser)
    options = command_parser.parse_args(top_options.arguments)
    with warnings.catch_warnings():
        warnings.showwarning = _print_warning
        try:
            return command.run(options)
        except KeyboardInterrupt:
            print(f"{name}: interrupted", file=sys.stderr)
            return INTERRUPTED
        except BrokenPipeError:  # the reader of the output closed it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED
        except (ToolkitError, OSError, ImportError) as error:
            if top_options.debug or options.debug:
                raise
            reason = str(error).removeprefix(f"{top_options.command}: ")
            print(f"{name}: {reason}", file=sys.stderr)
            return FAILED


def _replace_unencodable(output: Any) -> None:
    """Print "?" for characters that the stream cannot encode, as on Windows pipes.

    Standard error does this itself.
    """
    if getattr(output, "errors", None) == "strict" and hasattr(output, "reconfigure"):
        output.reconfigure(errors="replace")


class Parser(argparse.ArgumentParser):
    """Argument parser with one-line errors that suggest the nearest option.

    Args:
        name: the name of the program and the command.
        description, examples: the help text before and after the options.
    """

    def __init__(self, name: str, description: str, examples: str) -> None:
        super().__init__(
            prog=name,
            description=description,
            epilog=examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        """Print the line and exit with the code for wrong arguments."""
        unknown_option = re.search(r"unrecognized arguments: (-\S+)", message)
        hint = ""
        if unknown_option:
            known_options = re.findall(r"(?<![\w-])--?[\w-]+", self.format_help())
            hint = suggest_choice(unknown_option[1].partition("=")[0], known_options)
        self.exit(
            WRONG_USAGE, f"{self.prog}: {message}{hint} (see {self.prog} --help)\n"
        )


def choice_type(*choices: str) -> Callable[[str], str]:
    """Return an argument type for one of `choices`."""

    def check(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(
                f"expected one of {', '.join(choices)}; received {text!r}"
                f"{suggest_choice(text, choices)}"
            )
        return text

    return check


def parse_count(text: str) -> int:
    """Return a number of at least one, as an argument type."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number >= 1; received {text!r}")
    return int(text)


def _create_parser() -> Parser:
    rows = [f"  {name:10}{summary}" for name, (_, summary) in COMMANDS.items()]
    hint = f"{program_name()} COMMAND --help describes each command."
    parser = Parser(program_name(), "", "\n".join(["commands:", *rows, "", hint]))
    parser.add_argument(
        "--version", action="version", version=f"toolkit {toolkit.__version__}"
    )
    _add_debug_option(parser)
    parser.add_argument(
        "command",
        nargs="?",
        type=choice_type(*COMMANDS),
        metavar="COMMAND",
        help="one of the following commands",
    )
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="of the command"
    )
    return parser


def _add_debug_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--debug", action="store_true", help="show the full traceback of an error"
    )


def _split_help(documentation: str) -> tuple[str, str]:
    """Return a command's help text, and its examples with the typed program name."""
    description, _, examples = documentation.partition("Examples:\n")
    if examples:
        examples = f"examples:\n{examples.rstrip()}"
    return description.strip(), examples.replace("$ toolkit", program_name())


def _print_warning(message: Warning | str, *_: object, **options: object) -> None:
    print(f"warning: {message}", file=sys.stderr)
