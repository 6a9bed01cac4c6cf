"""Tests of the command line: help, errors, warnings and exit codes."""

import json
import os
import subprocess
import sys
import warnings
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


def replace_commands(run_command, monkeypatch):
    """Make every command run this function."""
    command = SimpleNamespace(
        __doc__="Nothing.", add_options=lambda parser: None, run=run_command
    )
    monkeypatch.setattr(cli, "import_module", lambda name: command)


def test_without_a_command_it_shows_help(capsys):
    assert cli.main([]) == cli.WRONG_USAGE
    printed = capsys.readouterr().err
    assert all(name in printed for name in cli.COMMANDS)


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        (["--help"], 0, "python -m toolkit"),
        (["--version"], 0, f"toolkit {toolkit.__version__}"),
        (["dance"], 2, "received 'dance' (see python -m toolkit --help)"),
        (["inspct"], 2, "received 'inspct'; did you mean 'inspect'?"),
        (["bench", "--rounds", "0"], 2, "expected a number >= 1; received '0'"),
        (["bench", "--only", "zebra"], 2, "received 'zebra'"),
        (["bench", "extra"], 2, "unrecognized arguments: extra"),
        (["inspect", "x", "--valeus"], 2, "--valeus; did you mean '--values'?"),
        (["inspect"], 2, "the following arguments are required: FILE"),
        (["run", "digit_cnn"], 2, "did you mean 'digits_cnn'?"),
        (
            ["run", "--processes", "2", "a/absent.py"],
            2,
            "there is no file 'a/absent.py'",
        ),
        (["run", "digits_cnn", "--help"], 0, "--epochs"),
        (["run", "digits_cnn", "--epochs", "x"], 2, "invalid int value: 'x'"),
        (["run", "no.py"], 2, "argument NAME: there is no file 'no.py'"),
        (["plot", "x", "-o", "x.sgv"], 2, "'.sgv'; did you mean '.svg'?"),
        (["plot", "x", "--direction", "UP"], 2, "expected one of BT, LR, RL, TB"),
        (["export", "x", "--batch", "1,0"], 2, "received '1,0'"),
        (["export", "x", "--size", "3"], 2, "a name, = and an integer > 0"),
        (["export", "x", "--format", "elf"], 2, "object, static, shared, onnx"),
        (["convert", "x", "x.foo"], 2, ".index.json; received 'x.foo'"),
        (["convert", "x", "y.h5", "--shard-size", "0"], 2, "number > 0; received '0'"),
    ],
)
def test_arguments_are_checked(arguments, code, words, capsys):
    with pytest.raises(SystemExit) as exit_error:
        cli.main(arguments)
    assert exit_error.value.code == code
    printed = capsys.readouterr()
    assert words in printed.out + printed.err


def test_output_that_is_not_utf8(tmp_path):
    model = toolkit.Sequential(
        [toolkit.Input((2,)), toolkit.layers.Dense(1, name="Größe")]
    )
    model.save(tmp_path / "m.keras")
    process = run("inspect", str(tmp_path / "m.keras"), PYTHONIOENCODING="ascii")
    assert process.returncode == 0, process.stderr
    assert "Gr??e" in process.stdout and "Total params: 3" in process.stdout


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_command_is_complete_and_shows_examples(name, capsys):
    command = import_module(cli.COMMANDS[name][0])
    assert command.__doc__ and command.add_options and command.run
    with pytest.raises(SystemExit) as exit_error:
        cli.main([name, "--help"])
    assert exit_error.value.code == 0
    printed = capsys.readouterr().out
    assert f"\nexamples:\n  python -m toolkit {name}" in printed
    assert command.__doc__.partition("\n")[0] in printed


def test_help_names_the_script(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["/some/bin/toolkit"])
    with pytest.raises(SystemExit):
        cli.main(["plot", "--help"])
    assert "  toolkit plot model.keras --shapes\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "error, code, words",
    [
        (ArgumentError("bench: expected more"), 1, "bench: expected more"),
        (FileNotFoundError(2, "No such file", "here"), 1, "No such file: 'here'"),
        (ImportError("plot needs Matplotlib"), 1, "plot needs Matplotlib"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_errors_print_a_line_and_set_the_exit_code(
    error, code, words, monkeypatch, capsys
):
    def fail(options):
        raise error

    replace_commands(fail, monkeypatch)
    assert cli.main(["bench"]) == code
    printed = capsys.readouterr().err
    assert printed.startswith("python -m toolkit bench: ")
    assert words in printed and printed.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["--debug", "bench"], ["bench", "--debug"], ["bench"]]
)
def test_debug_keeps_the_traceback(arguments, monkeypatch):
    error = ArgumentError if "--debug" in arguments else ZeroDivisionError

    def fail(options):
        raise error("it")

    replace_commands(fail, monkeypatch)
    with pytest.raises(error, match="it"):  # also for internal errors
        cli.main(arguments)


def test_a_warning_is_one_line(monkeypatch, capsys):
    def warn(options):
        warnings.simplefilter("always")
        warnings.warn("the file is old", stacklevel=2)
        return 0

    replace_commands(warn, monkeypatch)
    assert cli.main(["bench"]) == 0
    assert capsys.readouterr().err == "warning: the file is old\n"


@pytest.mark.skipif(os.name != "posix", reason="needs a shell's pipe")
def test_closed_output_pipe_is_not_an_error():
    command = f"{sys.executable} -m toolkit info | head -n 1"
    process = subprocess.run(
        command,
        shell=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (process.stdout, process.stderr) == ("Versions\n", "")


def test_bench_measures_and_stores_the_record(tmp_path):
    path = tmp_path / "record.json"
    process = run("bench", "--quick", "--only", "tiny_mlp", "--json", str(path))
    assert process.returncode == 0, process.stderr
    assert "tiny_mlp/fit, ms a step" in process.stdout
    record = json.loads(Path(path).read_text("utf-8"))
    assert record["toolkit"] == toolkit.__version__
    assert record["machine"]["cores"] > 0
    (row,) = record["rows"]
    assert row["samples"]["toolkit"] == [row["median"]["toolkit"]]


def test_bench_reports_failures():
    process = run("bench", "--quick", "--only", "tiny_mlp", TOOLKIT_BACKEND="none")
    assert process.returncode == cli.FAILED
    assert "failed: tiny_mlp/fit, toolkit: " in process.stderr


@pytest.mark.slow
def test_full_suite_runs():
    process = run("bench", "--quick")
    assert process.returncode == 0, process.stderr
