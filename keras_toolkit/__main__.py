"""Run a script of Keras on toolkit, or choose how an environment finds this backend.

A value of KERAS_BACKEND in the script has no effect. After --install, the environment
variable KERAS_BACKEND=toolkit is sufficient, without an import.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import sysconfig
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from keras_toolkit.finder import NAME, activate

# Python runs this line when it starts; it imports the package only if it is wanted.
_START_LINE = (
    f'import os; os.environ.get("KERAS_BACKEND") == "{NAME}" '
    'and __import__("keras_toolkit")\n'
)


_USAGE = """python -m keras_toolkit script.py [arguments]
       python -m keras_toolkit -m module [arguments]
       python -m keras_toolkit --install | --uninstall"""


def start_file() -> Path:
    """Return the file of the start code of this environment's Python."""
    return Path(sysconfig.get_path("purelib")) / "keras_toolkit_start.pth"


def install(path: Path) -> str:
    """Let `KERAS_BACKEND=toolkit` suffice in this environment; return a message."""
    if path.exists():
        _check_start_file(path)
    path.write_text(_START_LINE, encoding="utf-8")
    return f"wrote {path}: KERAS_BACKEND={NAME} now chooses this backend"


def uninstall(path: Path) -> str:
    """Undo `install`; return a message."""
    if not path.exists():
        return f"{path} does not exist"
    _check_start_file(path)
    path.unlink()
    return f"removed {path}"


def _check_start_file(path: Path) -> None:
    if path.read_text(encoding="utf-8") != _START_LINE:
        raise SystemExit(f"keras_toolkit: {path} was changed; delete it manually")


def run(arguments: Sequence[str]) -> None:
    """Run a script or a module as Python does, with this backend."""
    activate(overrides=True)
    if arguments[0] == "-m":
        if len(arguments) < 2:
            raise SystemExit("keras_toolkit: expected a module after -m")
        if not _has_module(arguments[1]):
            raise SystemExit(f"keras_toolkit: there is no module {arguments[1]!r}")
        sys.argv = list(arguments[1:])
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    if not os.path.exists(arguments[0]):
        raise SystemExit(
            f"keras_toolkit: cannot open {arguments[0]!r}: there is no such file"
        )
    sys.argv = list(arguments)
    sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
    runpy.run_path(arguments[0], run_name="__main__")


def _has_module(name: str) -> bool:
    """Return whether a module exists. This imports the packages that contain it."""
    package = name.rpartition(".")[0]
    if package and not _has_module(package):
        return False
    return find_spec(name) is not None


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and (arguments[0] == "-m" or not arguments[0].startswith("-")):
        run(arguments)
        return
    parser = argparse.ArgumentParser(
        prog="python -m keras_toolkit",
        usage=_USAGE,
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--install", action="store_true", help="once, for all scripts")
    choice.add_argument("--uninstall", action="store_true", help="undo --install")
    options = parser.parse_args(arguments)
    if not options.install and not options.uninstall:
        parser.error("expected a script, -m, --install or --uninstall")
    change = install if options.install else uninstall
    print(change(start_file()))


if __name__ == "__main__":
    main()
