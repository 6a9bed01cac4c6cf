"""Test the chart of `history.plot()`."""

import numpy as np
import pytest

import toolkit
from tests.pictures.geometry import check, texts_of
from toolkit import layers
from toolkit.errors import ArgumentError
from toolkit.pictures.shapes import Line, Rectangle

X = np.linspace(0, 1, 32, dtype="float32")[:, None]


def fitted(**options):
    model = toolkit.Sequential([layers.Dense(4, activation="tanh"), layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
    return model.fit(X, X[:, 0] ** 2, verbose=0, validation_split=0.25, **options)


def test_each_quantity_has_a_panel(tmp_path):
    picture = fitted(epochs=4).plot(tmp_path / "curves.svg")
    check(picture)
    assert (tmp_path / "curves.svg").read_text("utf-8") == picture.svg()
    texts = texts_of(picture)
    assert texts.index("loss") < texts.index("mae")
    assert texts.count("training") == texts.count("validation") == 2
    lines = [s for s in picture.shapes if isinstance(s, Line) and len(s.commands) == 4]
    assert [line.dashed for line in lines] == [False, True, False, True]


def test_values_are_at_their_epochs():
    history = fitted(epochs=7, validation_freq=[2, 6])
    hints = [
        s.hint
        for s in history.plot(metrics=["loss"]).shapes
        if isinstance(s, Rectangle)
    ]
    points = [hint.split(":")[0] for hint in hints if hint.startswith("validation")]
    assert points == ["validation, 2", "validation, 6"]
    lowest = min(history.history["val_loss"])
    best = next(hint for hint in hints if hint.startswith("best"))
    assert float(best.split(":")[1]) == pytest.approx(lowest, rel=1e-5)


def test_epochs_of_several_runs_are_consecutive():
    history = fitted(epochs=2)
    history.model.fit(X, X[:, 0], epochs=3, verbose=0, callbacks=[history])
    hints = [s.hint for s in history.plot().shapes if isinstance(s, Rectangle)]
    assert sum(hint.startswith("training, 5") for hint in hints) == 2


def test_refusals():
    with pytest.raises(ArgumentError, match="no numbers have been recorded"):
        toolkit.callbacks.History().plot()
    with pytest.raises(ArgumentError, match="metrics: expected one of 'loss', 'mae'"):
        fitted(epochs=1).plot(metrics=["accuracy"])


def test_notebooks_show_the_chart():
    assert fitted(epochs=2)._repr_html_().startswith("<svg")
    assert "History" in toolkit.callbacks.History()._repr_html_()
