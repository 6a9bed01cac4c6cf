"""Commands that start Python for a function of the package.

The interpreter runs the file `start.py` with the option `-P`. The command gives it the
folders and files of modules, so it searches neither the current folder nor PYTHONPATH:

- It imports the package itself from the file that this process has imported.
- At first it imports modules only from the folders that this process trusts: not from
  the current folder, and not from the folder of the user's script.
- A child that runs code of the user, such as a script, adds the folders of this code
  when it calls `enter_user_code`. Before this call it has imported the modules that it
  needs to start.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from toolkit.errors import UnsupportedError
from toolkit.processes.programs import clean_environment

_PACKAGE = __name__.partition(".")[0]
# Name of the main module in a child, as in `multiprocessing`.
_MAIN = "__mp_main__"
_context: dict[str, Any] = {}


def python_command(
    function: str,
    *arguments: str,
    runs_user_code: bool = False,
    has_script: bool = False,
    on_other_host: bool = False,
    options: Sequence[str] = (),
) -> list[str]:
    """Return the command of a Python process that calls a function of the package.

    Give the process `clean_environment()` as its environment.

    Args:
        function: "module:name". It is called with the list of arguments, and its result
            is the exit code.
        *arguments: strings for the function.
        runs_user_code: whether the child can import modules of the user, after it has
            called `enter_user_code`.
        has_script: whether the child runs another script than this process. Then it
            does not search the folder of this process's script.
        on_other_host: whether the process runs on another host, with the same folders.
            Its code keeps the search paths of programs and libraries of that host.
        options: more options of the interpreter.

    Raises:
        UnsupportedError: if this process has no interpreter to start.
    """
    if not sys.executable:
        raise UnsupportedError(
            f"{function}: expected the path of a Python interpreter in "
            "sys.executable; received None, so no process can be started"
        )
    context: dict[str, Any] = {
        "function": function,
        **_module_folders(_trusted_folders()),
    }
    if runs_user_code:
        context["user"] = _module_folders(_user_folders(has_script))
        context["main"] = _main_module()
        variables = _changed_variables()
        if on_other_host:
            variables = {n: v for n, v in variables.items() if n == "PYTHONPATH"}
        context["environment"] = variables
    start = Path(__file__).with_name("start.py")
    command = [sys.executable, *_interpreter_options(), *options, str(start)]
    return [*command, json.dumps(context), *arguments]


def _interpreter_options() -> Iterator[str]:
    """Yield the options of this interpreter that its children need, and `-P`."""
    yield "-P"
    flags = sys.flags
    if flags.ignore_environment:
        yield "-E"
    if flags.no_user_site:
        yield "-s"
    if flags.dont_write_bytecode:
        yield "-B"
    if flags.optimize:
        yield "-" + "O" * flags.optimize


def _changed_variables() -> dict[str, str]:
    """Return the variables of this process that `clean_environment` changes."""
    environment = clean_environment()
    return {
        name: value
        for name, value in os.environ.items()
        if environment.get(name) != value
    }


# --- folders of modules ---------------------------------------------------------------


def _module_folders(folders: list[str]) -> dict[str, Any]:
    """Return folders to search, and modules of this process that are in none of them.

    A package in the current folder that this process has imported is a file that it
    trusts. The child imports only that file of the folder.
    """
    modules: dict[str, str] = {}
    search_path = set(map(os.path.realpath, folders))
    for name, module in list(sys.modules.items()):
        file = _find_file(name, module)
        if file is None:
            continue
        folder = os.path.dirname(file)
        if os.path.basename(file).startswith("__init__."):
            folder = os.path.dirname(folder)
        if name == _PACKAGE or os.path.realpath(folder) not in search_path:
            modules[name] = file
    return {"path": folders, "modules": modules}


def _find_file(name: str, module: ModuleType) -> str | None:
    """Return the file of a top-level module that is no part of Python."""
    if "." in name or name in sys.stdlib_module_names or name.startswith("__"):
        return None
    file = getattr(module, "__dict__", {}).get("__file__")
    return os.path.abspath(file) if isinstance(file, str) else None


def _trusted_folders() -> list[str]:
    """Return the folders of `sys.path` from which the package's own code may import."""
    excluded_folders = {os.path.realpath(os.getcwd()), _script_folder()}
    for entry in _python_path():
        if not os.path.isabs(entry):
            excluded_folders.add(os.path.realpath(entry))
    return [
        path
        for path in _absolute_path()
        if os.path.realpath(path) not in excluded_folders
    ]


def _user_folders(has_script: bool) -> list[str]:
    """Return the folders of `sys.path` from which code of the user may import.

    The current folder is the last of them, if this process searches it, unless the
    script is in there or PYTHONPATH names it.
    """
    script, current = _script_folder(), os.path.realpath(os.getcwd())
    python_path = {os.path.realpath(entry) for entry in _python_path() if entry}
    excluded_folders = set() if current in python_path else {current}
    if script is not None:
        excluded_folders = (
            (excluded_folders | {script}) - python_path
            if has_script
            else excluded_folders - {script}
        )
    folders = [
        path
        for path in _absolute_path()
        if os.path.realpath(path) not in excluded_folders
    ]
    if not has_script and current in excluded_folders:
        is_searched = any(
            os.path.realpath(entry) == current for entry in map(str, sys.path)
        )
        folders += [current] if is_searched else []
    return folders


def _absolute_path() -> list[str]:
    paths = [path for path in sys.path if isinstance(path, str)]
    return list(dict.fromkeys(path for path in paths if os.path.isabs(path)))


def _python_path() -> list[str]:
    if sys.flags.ignore_environment or "PYTHONPATH" not in os.environ:
        return []
    return os.environ["PYTHONPATH"].split(os.pathsep)


def _script_folder() -> str | None:
    """Return the folder that Python searches because the main module is in it.

    That is the folder of a script. With `python -m` it is the current folder, if the
    module is in there.
    """
    name, file = _main_module()
    if file is None:
        return None
    folder = os.path.dirname(os.path.realpath(file))
    if name is None:
        return folder
    for _ in range(name.count(".")):
        folder = os.path.dirname(folder)
    return folder if folder == os.path.realpath(os.getcwd()) else None


def _main_module() -> tuple[str | None, str | None]:
    """Return the name of the main module, if it was started by one, and its file."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if not isinstance(file, str) or not os.path.isfile(file):
        return None, None
    spec = getattr(main, "__spec__", None)
    return (None if spec is None else spec.name), os.path.abspath(file)


# --- in the child ---------------------------------------------------------------------


def set_context(context: dict[str, Any]) -> None:
    """Store the context from the parent process."""
    _context.update(context)


def enter_user_code() -> None:
    """Search for modules as the parent process does, from now on.

    The variables of the environment are the parent's again, too. In a process that
    `python_command` did not start, this does nothing.
    """
    user = _context.pop("user", None)
    if user is None:
        return
    sys.path[:] = user["path"]
    _context["modules"].update(user["modules"])
    os.environ.update(_context["environment"])


def exit_with_parent(life: int) -> None:
    """End this process when the parent ends, whatever it is doing.

    Args:
        life: a pipe that the parent keeps open and never writes to. A connection is not
            enough: macOS reports a hangup only on a read.
    """

    def wait() -> None:
        os.read(life, 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def import_main_module() -> None:
    """Run the parent's main module under another name, for its definitions.

    `multiprocessing` does the same in a spawned process, so that a pickle can name
    classes and functions of a script.
    """
    name, file = _context.get("main", (None, None))
    if file is None:
        return
    module = ModuleType(_MAIN)
    if name is not None:
        namespace = runpy.run_module(name, run_name=_MAIN, alter_sys=True)
    else:
        namespace = runpy.run_path(file, run_name=_MAIN)
    module.__dict__.update(namespace)
    sys.modules["__main__"] = sys.modules[_MAIN] = module
