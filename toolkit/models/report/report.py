"""write_report: the page and its sections."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit import settings, tree
from toolkit.errors import ArgumentError
from toolkit.files.writing import check_folder, write_text
from toolkit.inspection import Inspection
from toolkit.models.functional.model import Functional
from toolkit.models.plotting.graph import Show, read_model
from toolkit.models.report.classes import Confusion, confusion, confusion_section
from toolkit.models.report.costs import (
    costs_section,
    layer_costs,
    program_section,
    step_seconds,
    weight_bytes,
)
from toolkit.models.report.outcome import Outcome, outcome
from toolkit.models.report.values import values_section
from toolkit.models.sequential import Sequential
from toolkit.models.summary import class_name, layer_rows
from toolkit.models.training.data_adapters import unpack_x_y_sample_weight
from toolkit.models.training.evaluation import make_batch
from toolkit.pictures.axes import bytes_text, count_text, number_text, seconds_text
from toolkit.pictures.diagram import draw
from toolkit.pictures.page import Markup, bar, figure, join, page, table, tag

if TYPE_CHECKING:
    from toolkit.layers.layer import Layer

_MANY = 40  # number of layers above which the diagram is collapsed
_LARGE = 10_000_000  # larger numbers are rounded
_REPEATS = 15  # of a measurement
_BATCH = 32  # samples in the batch of zeros


def write_report(
    model: Any,
    filepath: str | os.PathLike[str],
    data: Any,
    class_names: Sequence[str] | None,
    history: Any,
    batch_size: int,
    measure: bool,
) -> None:
    """Write the report of a model; see `Model.report`."""
    path = os.fspath(filepath)
    if not path.lower().endswith((".html", ".htm")):
        raise ArgumentError(
            f"report: expected a path ending in .html; received {path!r}"
        )
    check_folder(path)
    evaluation = None if data is None else outcome(model, data, batch_size)
    if not model.built:
        raise ArgumentError(
            f"report: {model.name} has no weights yet; build it, or pass data"
        )
    history = model.history if history is None else history
    classes = None
    if evaluation is not None:
        classes = confusion(evaluation.y_true, evaluation.y_pred, class_names)
    if class_names is not None and classes is None:
        raise ArgumentError(
            "report: class_names needs data with class targets, and a model with a "
            "score for each class"
        )
    batch = _batch(model, evaluation) if measure else None
    content = _content(model, evaluation, classes, history, batch)
    text = page(f"Report of {model.name}", content)
    write_text(path, text)


def _batch(model: Any, evaluation: Outcome | None) -> Any:
    """Return a batch for measurements: the first of the data, or zeros."""
    if evaluation is not None:
        return evaluation.batch
    if not isinstance(model, (Functional, Sequential)) or not model.inputs:
        return None

    def zeros(symbol: Any) -> Any:
        shape = [_BATCH if n is None else n for n in symbol.shape]
        return np.zeros(shape, symbol.dtype)

    return make_batch(tree.map_structure(zeros, model.input), None, None)


def _content(
    model: Any,
    evaluation: Outcome | None,
    classes: Confusion | None,
    history: Any,
    batch: Any,
) -> Markup:
    """Return the page's body: a header with key figures, and the sections."""
    plans = _plans(model, batch)
    sections = {"architecture": ("Architecture", _architecture(model))}
    if history is not None and history.history:
        sections["training"] = ("Training", _training(history))
    if evaluation is not None and evaluation.logs:
        sections["evaluation"] = ("Evaluation", _evaluation(evaluation))
    if classes is not None:
        sections["classes"] = ("Classes", confusion_section(classes))
    elif evaluation is not None:
        errors = values_section(evaluation.y_true, evaluation.y_pred)
        if errors is not None:
            sections["predictions"] = ("Predictions", errors)
    if plans:
        step_name, plan = plans[-1]
        x = unpack_x_y_sample_weight(batch)[0]
        samples = len(tree.flatten(x)[0])
        costs = costs_section(layer_costs(model, x), plans[0][1], samples)
        sections["costs"] = ("Time and memory", costs)
        sections["compiler"] = ("Compiler", program_section(plan, step_name))
    links = [
        tag("li", tag("a", title, href=f"#{key}"))
        for key, (title, _) in sections.items()
    ]
    header = tag(
        "header",
        tag("h1", model.name),
        tag("p", f"A {class_name(model)} model of {len(model.layers)} layers"),
        tag("nav", tag("ul", *links), aria_label="Sections"),
        _facts(model, evaluation, classes, history, plans),
    )
    bodies = [section for _, section in sections.values()]
    return Markup(header + "".join(bodies) + _footer())


def _plans(model: Any, batch: Any) -> list[tuple[str, Inspection]]:
    """Return the measured steps: prediction, and training if possible."""
    if batch is None:
        return []
    x, y, sample_weight = unpack_x_y_sample_weight(batch)
    prediction = model.make_predict_function().inspect((x,))
    if prediction is None:  # the model runs eagerly: there is no program
        return []
    plans = [("prediction", prediction)]
    if model.compiled and y is not None and model.optimizer is not None:
        plans.append(("training", model.inspect(x, y, sample_weight)))
    for _, plan in plans:
        plan.measure(_REPEATS)
    return plans


def _facts(
    model: Any,
    evaluation: Outcome | None,
    classes: Confusion | None,
    history: Any,
    plans: list[tuple[str, Inspection]],
) -> Markup:
    count = model.count_params()
    trainable = sum(v.size for v in model.trainable_weights)
    facts = {"Parameters": _large(count)}
    if trainable != count:
        facts["Trainable"] = _large(trainable)
    facts["Weights"] = bytes_text(weight_bytes(model.weights))
    if history is not None and history.history:
        facts["Epochs"] = f"{max(map(len, history.history.values())):,}"
    if classes is not None:
        facts["Accuracy"] = f"{classes.accuracy:.1%}"
    if evaluation is not None and evaluation.logs:
        facts["Loss"] = number_text(evaluation.logs.get("loss", float("nan")))
    for step_name, plan in plans:
        facts[f"{step_name.capitalize()} step"] = seconds_text(step_seconds(plan))
    pairs = [tag("div", tag("dt", k), tag("dd", v)) for k, v in facts.items()]
    return tag("dl", *pairs, class_="facts")


def _large(count: int) -> str:
    return f"{count:,}" if count < _LARGE else count_text(count)


def _architecture(model: Any) -> Markup:
    content = read_model(model, Show(shapes=True, inputs=False, activations=True), True)
    drawing = figure(draw(content, "TB", "ortho"), min_scale=0.75)
    if len(model.layers) > _MANY:
        drawing = tag("details", tag("summary", "Show the diagram"), drawing)
    rows = list(layer_rows(model))
    maximum = max((_params(layer) for layer, *_ in rows), default=0)
    cells = [
        (
            join((name, tag("span", kind, class_="note"))),
            tag("span", shape, class_="shape"),
            bar(_params(layer) / (maximum or 1), params),
        )
        for layer, name, kind, shape, params in rows
    ]
    heads = ("Layer", "Output shape", "Parameters")
    listed = table(heads, cells, "Layers", numbers=(2,))
    figures = tag("div", drawing, listed, class_="beside")
    return tag("section", tag("h2", "Architecture"), figures, id="architecture")


def _params(layer: Layer) -> int:
    return layer.count_params() if getattr(layer, "built", False) else 0


def _training(history: Any) -> Markup:
    pictures = [figure(history.plot(metrics=[name])) for name in history.metrics]
    content = [tag("h2", "Training"), tag("div", *pictures, class_="panels")]
    if any(name.startswith("val_") for name in history.history):
        note = (
            "Training lines are solid and validation lines are dashed. A ring marks "
            "the lowest validation loss."
        )
        content.append(tag("p", note, class_="note"))
    return tag("section", *content, id="training")


def _evaluation(evaluation: Outcome) -> Markup:
    names = sorted(evaluation.logs, key=lambda name: name != "loss")
    rows = [(name, number_text(float(evaluation.logs[name]), 6)) for name in names]
    caption = f"Results on the {evaluation.samples:,} samples of this report's data"
    listed = table(("Metric", "Value"), rows, caption, numbers=(1,))
    return tag("section", tag("h2", "Evaluation"), listed, id="evaluation")


def _footer() -> Markup:
    timestamp = datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M")
    text = (
        f"Created on {timestamp} by toolkit on backend {settings.backend()}, with "
        f"{settings.num_threads()} threads, Python {platform.python_version()} and "
        f"NumPy {np.__version__}. This page loads no external resources."
    )
    return tag("footer", tag("p", text))
