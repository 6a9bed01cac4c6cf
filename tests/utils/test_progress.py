"""Test Progbar: its output, and the destination of messages."""

import io
import logging
import sys

import numpy as np
import pytest

import toolkit
from toolkit.console.messages import print_message
from toolkit.errors import ArgumentError
from toolkit.utils import Progbar, progress


@pytest.fixture
def silent():
    toolkit.config.disable_interactive_logging()
    yield
    toolkit.config.enable_interactive_logging()


@pytest.mark.parametrize(
    "names, shown",
    [
        ({"stateful_metrics": ["x"]}, "x: 4.0000"),
        ({"stateful_metrics": []}, "x: 3.0000"),
        ({"stateless_metrics": ["x"]}, "x: 3.0000"),
        ({"stateless_metrics": []}, "x: 4.0000"),
    ],
)
def test_values_are_averaged_on_request(names, shown, capsys):
    bar = Progbar(4, interval=0, **names)
    bar.update(1, [("x", 1.0)])
    bar.update(3, [("x", np.float32(4.0))])
    line = capsys.readouterr().out.split("\r")[-1]
    assert line.startswith("3/4 ━━━━━━━━━━━━━━━ ")
    assert line.rstrip().endswith(shown)  # blanks cover the end of a longer line


def test_last_update_ends_the_line(capsys):
    bar = Progbar(2, interval=60)
    for step in range(3):
        bar.update(step, [("loss", [step, step + 1.0])])
    text = capsys.readouterr().out
    assert text.count("\r") == 2 and text.endswith("loss: 2.5000\n")


def test_one_line_at_the_end(capsys):
    bar = Progbar(2, verbose=2)
    bar.add(1, [("loss", 2e-5)])
    assert capsys.readouterr().out == ""
    bar.add(1, [("loss", 2e-5)])
    text = capsys.readouterr().out
    assert text.startswith("2/2 - 0s - ") and text.endswith("loss: 2.0000e-05\n")


@pytest.mark.parametrize("target", [None, 0])
def test_unknown_number_of_steps(target, capsys):
    Progbar(target).update(5, finalize=True)
    assert "5/Unknown 0s" in capsys.readouterr().out.replace("  ", " ")
    with pytest.raises(ArgumentError, match="Only one of"):
        Progbar(target, stateful_metrics=[], stateless_metrics=[])


def test_messages_are_logged(silent, capsys, caplog):
    model = toolkit.Sequential([toolkit.Input((2,)), toolkit.layers.Dense(1)])
    model.compile("sgd", "mse")
    with caplog.at_level(logging.INFO, "toolkit"):
        model.fit(np.ones((4, 2)), np.ones((4, 1)), epochs=2, verbose=1)
        Progbar(1).update(1, [("loss", 1.0)])
    assert capsys.readouterr() == ("", "")
    assert not toolkit.config.is_interactive_logging_enabled()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 5 and lines[0] == "Epoch 1/2"
    assert lines[1].startswith("1/1 - ")


def test_unencodable_characters_are_replaced(monkeypatch):
    output = io.TextIOWrapper(io.BytesIO(), encoding="cp1251")
    monkeypatch.setattr("sys.stdout", output)
    print_message("1/2 ━")
    output.seek(0)
    assert output.read().rstrip() == "1/2 ?"


def test_consoles_without_colours_receive_no_codes(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    for name in progress._TERMINAL_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert not progress._has_colors()
    monkeypatch.setenv("WT_SESSION", "1")
    assert progress._has_colors()


def test_summaries_and_downloads_are_logged(silent, capsys, caplog, tmp_path):
    (tmp_path / "data.txt").write_text("data")
    model = toolkit.Sequential([toolkit.Input((2,)), toolkit.layers.Dense(1)])
    with caplog.at_level(logging.INFO, "toolkit"):
        model.summary()
        origin = (tmp_path / "data.txt").as_uri()
        toolkit.utils.get_file("data.txt", origin, cache_dir=tmp_path / "cache")
    assert capsys.readouterr() == ("", "")
    assert "Total params: 3" in caplog.text and f"Downloading {origin}" in caplog.text
