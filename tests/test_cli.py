"""The command line: help, mistakes, exit codes, and its one command."""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

import toolkit
from toolkit import cli
from toolkit.errors import ArgumentError


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "toolkit", *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_without_a_command_it_shows_help(capsys):
    assert cli.main([]) == cli.WRONG_USAGE
    printed = capsys.readouterr().err
    assert all(name in printed for name in cli.COMMANDS)


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        (["--help"], 0, "python -m toolkit"),
        (["--version"], 0, f"toolkit {toolkit.__version__}"),
        (["dance"], 2, "invalid choice: 'dance' (choose from"),
        (["bench", "--help"], 0, "python -m toolkit bench"),
        (["bench", "--rounds", "0"], 2, "expected a number >= 1; received '0'"),
        (["bench", "--only", "zebra"], 2, "received 'zebra'"),
        (["bench", "extra"], 2, "unrecognized arguments: extra"),
    ],
)
def test_arguments_are_checked(arguments, code, words, capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(arguments)
    assert left.value.code == code
    printed = capsys.readouterr()
    assert words in printed.out + printed.err


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_command_is_complete(name):
    command = import_module(cli.COMMANDS[name][0])
    assert command.__doc__ and command.add_options and command.run


@pytest.mark.parametrize(
    "error, code, words",
    [
        (ArgumentError("bench: expected more"), 1, "bench: expected more"),
        (FileNotFoundError(2, "No such file", "here"), 1, "No such file: 'here'"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_errors_become_a_line_and_a_code(error, code, words, monkeypatch, capsys):
    def fail(options):
        raise error

    command = SimpleNamespace(add_options=lambda parser: None, run=fail)
    monkeypatch.setattr(cli, "import_module", lambda name: command)
    assert cli.main(["bench"]) == code
    printed = capsys.readouterr().err
    assert printed.startswith("python -m toolkit bench: ")
    assert words in printed and printed.count("\n") == 1


def test_bench_measures_and_keeps_the_record(tmp_path):
    path = tmp_path / "record.json"
    done = run("bench", "--quick", "--only", "tiny_mlp", "--json", str(path))
    assert done.returncode == 0, done.stderr
    assert "tiny_mlp/fit, ms a step" in done.stdout
    record = json.loads(Path(path).read_text("utf-8"))
    assert record["toolkit"] == toolkit.__version__
    assert record["machine"]["cores"] > 0
    (row,) = record["rows"]
    assert row["samples"]["toolkit"] == [row["median"]["toolkit"]]


def test_bench_reports_what_failed():
    done = run("bench", "--quick", "--only", "tiny_mlp", TOOLKIT_BACKEND="none")
    assert done.returncode == cli.FAILED
    assert "failed: tiny_mlp/fit, toolkit: " in done.stderr


@pytest.mark.slow
def test_the_whole_suite_runs():
    done = run("bench", "--quick")
    assert done.returncode == 0, done.stderr
