"""Test CompileLoss and CompileMetrics directly: how targets match outputs."""

import numpy as np
import pytest

import toolkit
from toolkit import metrics, ops
from toolkit.errors import ArgumentError, ShapeError
from toolkit.models.training.compile_loss import CompileLoss
from toolkit.models.training.compile_metrics import CompileMetrics

RNG = np.random.default_rng(0)
A, B, C, D = (RNG.normal(size=(4, 3)).astype("float32") for _ in range(4))
WEIGHTS = np.arange(4, dtype="float32")
NAMES = ["z", "a"]  # not in alphabetical order


def tensor(leaf):
    return None if leaf is None else ops.convert_to_tensor(leaf)


def tensors(structure):
    return toolkit.tree.map_structure(tensor, structure)


def mse(a, b, weights=None):
    errors = ((a - b) ** 2).mean(axis=1)
    return (errors * (1 if weights is None else weights)).mean()


def mae(a, b):
    return abs(a - b).mean()


def loss_of(loss, y_true, y_pred, weights=None, sample_weight=None, names=None):
    compiled = CompileLoss(loss, weights, names)
    total = compiled(*map(tensors, (y_true, y_pred, sample_weight)))
    return compiled, float(total)


# --- total ----------------------------------------------------------------------------

# loss, targets, outputs, names of the outputs, operands of each loss
MATCHED = {
    "one of each": ("mse", A, B, None, mse(A, B)),
    "named": ("mse", A, B, ["z"], mse(A, B)),
    "by the only name": ({"z": "mse"}, A, B, ["z"], mse(A, B)),
    "by any name": ({"what": "mse"}, A, B, None, mse(A, B)),
    "several of one": (["mse", "mae"], A, B, None, mse(A, B) + mae(A, B)),
    "a list of one": ("mse", A, [B], None, mse(A, B)),
    "lists": ("mse", [A, B], [C, D], None, mse(A, C) + mse(B, D)),
    "tuples": ("mse", (A, B), [C, D], None, mse(A, C) + mse(B, D)),
    "a loss each": (["mse", "mae"], [A, B], [C, D], None, mse(A, C) + mae(B, D)),
    "by name": ({"a": "mae", "z": "mse"}, [A, B], [C, D], NAMES, mse(A, C) + mae(B, D)),
    "targets by name": (
        ["mse", "mae"],
        {"a": B, "z": A},
        [C, D],
        NAMES,
        mse(A, C) + mae(B, D),
    ),
    "dicts": ({"q": "mae", "p": "mse"}, {"p": A, "q": B}, {"q": D, "p": C}, None, None),
    "lists of dicts": ("mse", [{"p": A}, B], [{"p": C}, D], None, None),
    "losses of dicts": (["mse", "mae"], {"p": A, "q": B}, {"p": C, "q": D}, None, None),
    "no loss for one": (["mse", None], [A, B], [C, D], None, mse(A, C)),
    "no target for one": (["mse", None], [A], [C, D], None, mse(A, C)),
    "no target for the first": ([None, "mae"], [B], [C, D], None, mae(B, D)),
    "a target by its name": (["mse", None], {"z": A}, [C, D], NAMES, mse(A, C)),
    "targets for two of three": (
        ["mse", None, "mae"],
        [A, B],
        [C, C, D],
        None,
        mse(A, C) + mae(B, D),
    ),
    "some by name": ({"p": "mse"}, {"p": A}, {"p": C, "q": D}, None, mse(A, C)),
    "none by name": (
        {"z": None, "a": "mae"},
        [B],
        [C, D],
        NAMES,
        mae(B, D),
    ),
    "several of each": ([["mse", "mae"], "mae"], [A, B], [C, D], None, None),
    "no target for one that is named": (["mse", None], [A], [C, D], NAMES, mse(A, C)),
    "numbers for names": ({0: "mse", 1: "mae"}, {0: A, 1: B}, {0: C, 1: D}, None, None),
    "one of several left out": (["mse", None], A, B, None, mse(A, B)),
    "no target for the second of a dict": (
        {"p": "mse", "q": None},
        [A],
        {"p": C, "q": D},
        None,
        mse(A, C),
    ),
    "a dict in a list": (
        ["mse", {"p": "mae"}],
        [A, {"p": B}],
        [C, {"p": D}],
        None,
        mse(A, C) + mae(B, D),
    ),
}
OTHERS = {
    "dicts": mse(A, C) + mae(B, D),
    "lists of dicts": mse(A, C) + mse(B, D),
    "losses of dicts": mse(A, C) + mae(B, D),
    "several of each": mse(A, C) + mae(A, C) + mae(B, D),
    "numbers for names": mse(A, C) + mae(B, D),
}


@pytest.mark.parametrize("case", MATCHED)
def test_total_of_matched_targets_and_outputs(case):
    loss, y_true, y_pred, names, expected = MATCHED[case]
    _, results = loss_of(loss, y_true, y_pred, names=names)
    expected = OTHERS[case] if expected is None else expected
    assert results == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize(
    "loss, weights, factors",
    [
        ("mse", 2.0, (2, 2)),
        ("mse", 3, (3, 3)),
        ("mse", [2.0], (2, 2)),
        ("mse", [2.0, 0.5], (2, 0.5)),
        ("mse", (2.0, 0.5), (2, 0.5)),
        ("mse", {"z": 2.0, "a": 0.5}, (2, 0.5)),
        (["mse", "mse"], [2.0, 0.5], (2, 0.5)),
        (["mse", "mse"], {"p": 2.0, "q": 0.5}, (2, 0.5)),
        ({"z": "mse", "a": "mse"}, {"a": 0.5, "z": 2.0}, (2, 0.5)),
        ({"z": "mse", "a": "mse"}, {"a": 0.5}, (1, 0.5)),
        (["mse", None], [2.0, 0.5], (2, 0)),
    ],
)
def test_weights_of_losses(loss, weights, factors):
    compiled, results = loss_of(loss, [A, B], [C, D], weights, names=NAMES)
    losses = mse(A, C), mse(B, D)
    expected = sum(f * loss for f, loss in zip(factors, losses, strict=True))
    assert results == pytest.approx(float(expected), rel=1e-5)
    if compiled.metrics:  # the logs show the parts without their weights
        for metric, value in zip(compiled.metrics, losses, strict=True):
            assert float(metric.result()) == pytest.approx(float(value), rel=1e-5)


def test_several_losses_of_an_output_by_its_name():
    losses = {"z": ["mse", "mae"], "a": "mae"}
    compiled, results = loss_of(losses, [A, B], [C, D], names=NAMES)
    expected = mse(A, C) + mae(A, C) + mae(B, D)
    assert results == pytest.approx(float(expected), rel=1e-5)
    assert [m.name for m in compiled.metrics] == ["z_loss", "z_loss", "a_loss"]


def test_weights_of_several_losses_of_one_output():
    _, results = loss_of(["mse", "mae"], A, C, [2.0, 0.5])
    assert results == pytest.approx(float(2 * mse(A, C) + 0.5 * mae(A, C)), rel=1e-5)


@pytest.mark.parametrize(
    "loss, weights, message",
    [
        ("mse", [1.0, 2.0, 3.0], r"match the number of losses, 2; received 3"),
        ("mse", {"z": 2.0}, r"match the number of losses, 2; received 1"),
        (
            ["mse", "mae"],
            [1.0],
            r"expected 2 loss_weights, one for each loss; received 1",
        ),
        ({"z": "mse", "a": "mae"}, {"b": 1.0}, r"keys \['b'\]; the losses have"),
        ("mse", object(), "loss_weights to be a number"),
        ("mse", {"z": "mae"}, "loss_weights to be a number"),
    ],
)
def test_weights_that_do_not_match_the_losses(loss, weights, message):
    with pytest.raises(ArgumentError, match=message):
        loss_of(loss, [A, B], [C, D], weights, names=NAMES)


@pytest.mark.parametrize(
    "loss, y_true, y_pred, names, message",
    [
        ({"p": "mse"}, [A, B], [C, D], None, r"a dict of losses with the keys None"),
        ({"z": "mse"}, [A, B], [C, D], NAMES, r"with the keys \['z', 'a'\]"),
        ({"z": "mse", "y": "mse"}, A, C, ["z"], r"with the keys \['z'\]"),
        ({"p": "mse", "q": "mse"}, A, C, None, "with the keys None"),
        ("mse", [A, B, A], [C, D], None, "structures of targets and outputs differ"),
        ("mse", {"p": A, "r": B}, {"p": C, "q": D}, None, "structures of targets and"),
        ("mse", [A], [C, D], None, "structures of targets and outputs differ"),
        (["mse", None], [A, B, A], [C, D], None, "structures of targets and outputs"),
        (["mse"] * 3, [A, B], [C, D], None, "there is a loss for '2'"),
        ({"p": "mse", "r": "mse"}, {"p": A}, {"p": C}, None, "there is a loss for 'r'"),
        ({"p": {"x": "mse"}}, {"p": A}, {"p": C}, None, "there is a loss for 'p/x'"),
        ([["mse"], {"x": "mse"}], [A, B], [C, D], None, "there is a loss for '1/x'"),
        ({"p": {"x": "mse"}}, {"p": A[0, 0]}, {"p": C[0, 0]}, None, "for 'p/x'"),
        ("mse", None, A, None, "expected targets `y`; received None"),
    ],
)
def test_losses_and_targets_that_do_not_match(loss, y_true, y_pred, names, message):
    with pytest.raises(ArgumentError, match=message):
        loss_of(loss, y_true, y_pred, names=names)


@pytest.mark.parametrize(
    "loss, y_pred, names, expected",
    [
        ("mse", [C, D], NAMES, "z_loss a_loss"),
        ("mse", [C, D], None, "mse_loss mse_loss"),
        ("mse", [C, D], ["only"], "mse_loss mse_loss"),
        (["mse", "mae"], C, ["z"], "z_loss z_loss"),
        (["mse", "mae"], C, None, "mse_loss mae_loss"),
        ("mse", {"p": C, "q": D}, NAMES, "p_loss q_loss"),
        ("mse", {"p": [C], "q": {"r": D}}, NAMES, "p/z_loss q/r_loss"),
        ("mse", {"p": [C, D]}, None, "p/mse_loss p/mse_loss"),
        ("mse", C, ["z"], ""),
    ],
)
def test_each_of_several_losses_has_a_name_in_the_logs(loss, y_pred, names, expected):
    compiled, _ = loss_of(loss, y_pred, y_pred, names=names)
    assert [m.name for m in compiled.metrics] == expected.split()
    assert compiled.variables == [v for m in compiled.metrics for v in m.variables]


@pytest.mark.parametrize("names", [None, ["z", "a", "p"]])
def test_loss_of_several_outputs_has_its_name_in_the_logs(names):
    def both(y_true, y_pred):
        errors = toolkit.tree.map_structure(ops.subtract, y_true, y_pred)
        return sum(ops.mean(ops.square(error)) for error in errors)

    compiled, _ = loss_of([both, "mse"], [[A, B], A], [[C, D], C], names=names)
    last = "mse_loss" if names is None else "p_loss"
    assert [m.name for m in compiled.metrics] == ["both_loss", last]


def test_logged_parts_are_means_over_all_samples():
    compiled, _ = loss_of("mse", [A, B], [C, D])
    compiled(*map(tensors, ([A[:1], B[:1]], [C[:1], D[:1]])))
    errors = ((A - C) ** 2).mean(axis=1)
    expected = (errors.sum() + errors[0]) / 5
    assert float(compiled.metrics[0].result()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "sample_weight, factors",
    [
        (WEIGHTS, (WEIGHTS, WEIGHTS)),
        ([WEIGHTS, None], (WEIGHTS, None)),
        ((None, WEIGHTS), (None, WEIGHTS)),
        ({"a": WEIGHTS, "z": None}, (None, WEIGHTS)),
    ],
)
def test_sample_weights_for_all_outputs_or_for_each(sample_weight, factors):
    _, results = loss_of("mse", [A, B], [C, D], None, sample_weight, NAMES)
    expected = mse(A, C, factors[0]) + mse(B, D, factors[1])
    assert results == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("y_pred", [C, [C]], ids=["a tensor", "a list"])
@pytest.mark.parametrize(
    "sample_weight", [WEIGHTS, [WEIGHTS], (WEIGHTS,), {"z": WEIGHTS}]
)
def test_sample_weights_of_one_output(y_pred, sample_weight):
    _, results = loss_of("mse", A, y_pred, None, sample_weight, ["z"])
    assert results == pytest.approx(float(mse(A, C, WEIGHTS)), rel=1e-5)
    _, results = loss_of("mse", A, y_pred, None, None, ["z"])
    assert results == pytest.approx(float(mse(A, C)), rel=1e-5)


def test_sample_weights_only_for_outputs_with_a_loss():
    _, results = loss_of(["mse", None], [A, B], [C, D], None, [WEIGHTS])
    assert results == pytest.approx(float(mse(A, C, WEIGHTS)), rel=1e-5)


@pytest.mark.parametrize(
    "y_pred, index", [([C, D], "'a'"), ({"p": C, "q": D}, "'q'")], ids=["list", "dict"]
)
def test_wrong_target_shape_error_names_the_output(y_pred, index):
    targets = np.zeros((4, 7), "float32")
    y_true = [A, targets] if isinstance(y_pred, list) else {"p": A, "q": targets}
    with pytest.raises(ShapeError, match=rf"{index}.*\(4, 7\)"):
        loss_of("mse", y_true, y_pred, names=NAMES)
    compiled = CompileLoss("mse", None, NAMES)
    compiled.build(*map(tensors, (y_pred, y_pred)))
    with pytest.raises(ShapeError, match=rf"{index}.*\(4, 7\)"):
        compiled.check_targets(*map(tensors, (y_true, y_pred)))


def test_outputs_without_any_loss_have_no_total():
    compiled = CompileLoss([None, None])
    assert compiled(*map(tensors, ([A, B], [C, D]))) is None
    assert not compiled.metrics


# --- metrics --------------------------------------------------------------------------


def results_of(y_true, y_pred, sample_weight=None, names=None, **arguments):
    compiled = CompileMetrics(
        arguments.get("metrics"), arguments.get("weighted_metrics"), names
    )
    compiled.update_state(*map(tensors, (y_true, y_pred, sample_weight)))
    results = {name: float(value) for name, value in compiled.result().items()}
    compiled.reset_state()
    assert not any(np.any(v.numpy()) for v in compiled.variables)
    return results


# metrics, targets, outputs, names of the outputs, results
MEASURED = {
    "one": (["mse"], A, C, None, {"mse": mse(A, C)}),
    "one, named": (["mse"], A, C, ["z"], {"mse": mse(A, C)}),
    "one in a list": (["mse"], A, [C], ["z"], {"mse": mse(A, C)}),
    "one in a dict": ({"z": "mse"}, {"y": A}, {"z": C}, ["z"], {"mse": mse(A, C)}),
    "by the only name": ({"z": ["mse"]}, A, C, ["z"], {"mse": mse(A, C)}),
    "by any name": ({"what": "mse"}, A, C, None, {"mse": mse(A, C)}),
    "one each": (
        ["mse", "mae"],
        [A, B],
        [C, D],
        NAMES,
        {"z_mse": mse(A, C), "a_mae": mae(B, D)},
    ),
    "without names": (
        ["mse", "mae"],
        [A, B],
        [C, D],
        None,
        {"mse": mse(A, C), "mae": mae(B, D)},
    ),
    "other names": (
        ["mse", "mae"],
        [A, B],
        [C, D],
        ["only"],
        {"mse": mse(A, C), "mae": mae(B, D)},
    ),
    "several each": (
        [["mse", "mae"], []],
        [A, B],
        [C, D],
        NAMES,
        {"z_mse": mse(A, C), "z_mae": mae(A, C)},
    ),
    "by name": ({"a": "mae"}, [A, B], [C, D], NAMES, {"a_mae": mae(B, D)}),
    "targets by name": (
        {"a": "mae", "z": "mse"},
        {"a": B, "z": A},
        [C, D],
        NAMES,
        {"z_mse": mse(A, C), "a_mae": mae(B, D)},
    ),
    "dicts": (
        {"p": "mse", "q": "mae"},
        {"q": B, "p": A},
        {"p": C, "q": D},
        NAMES,
        {"p_mse": mse(A, C), "q_mae": mae(B, D)},
    ),
    "targets by other names": (
        ["mse", "mae"],
        {"p": A, "q": B},
        [C, D],
        None,
        {"mse": mse(A, C), "mae": mae(B, D)},
    ),
    "dicts of no names": (
        {"p": "mse", "q": "mae"},
        {"q": B, "p": A},
        {"p": C, "q": D},
        None,
        {"p_mse": mse(A, C), "q_mae": mae(B, D)},
    ),
    "dicts by the names of outputs": (
        ["mse", "mae"],
        {"z": A, "a": B},
        {"a": D, "z": C},
        NAMES,
        {"z_mse": mse(A, C), "a_mae": mae(B, D)},
    ),
    "lists in lists": (
        [["mse", "mae"], "mse"],
        [[A, B], A],
        [[C, D], D],
        None,
        {"mse": mse(A, C), "mae": mae(B, D), "mse_1": mse(A, D)},
    ),
    "nested": (
        {"p": ["mse", "mae"]},
        {"p": [A, B]},
        {"p": [C, D]},
        NAMES,
        {"z_mse": mse(A, C), "a_mae": mae(B, D)},
    ),
}


@pytest.mark.parametrize("case", MEASURED)
def test_metrics_of_matched_targets_and_outputs(case):
    arguments, y_true, y_pred, names, expected = MEASURED[case]
    results = results_of(y_true, y_pred, names=names, metrics=arguments)
    assert list(results) == list(expected)
    for name, value in expected.items():
        assert results[name] == pytest.approx(float(value), rel=1e-5)


def weighted(a, b, weights):
    errors = ((a - b) ** 2).mean(axis=1)
    return float(np.average(errors, weights=weights))


@pytest.mark.parametrize(
    "sample_weight, expected",
    [
        (None, (None, None)),
        (WEIGHTS, (WEIGHTS, WEIGHTS)),
        ([WEIGHTS, WEIGHTS**2], (WEIGHTS, WEIGHTS**2)),
        ([WEIGHTS], (WEIGHTS, WEIGHTS)),
        ({"a": WEIGHTS**2, "z": WEIGHTS}, (WEIGHTS, WEIGHTS**2)),
    ],
)
def test_only_weighted_metrics_take_weights(sample_weight, expected):
    arguments = {"metrics": ["mse", "mse"], "weighted_metrics": ["mse", "mse"]}
    results = results_of([A, B], [C, D], sample_weight, NAMES, **arguments)
    unweighted = [results["z_mse"], results["a_mse"]]
    assert unweighted == pytest.approx([mse(A, C), mse(B, D)], rel=1e-5)
    values = [results["z_weighted_mse"], results["a_weighted_mse"]]
    expected_means = [weighted(*v) for v in ((A, C, expected[0]), (B, D, expected[1]))]
    assert values == pytest.approx(expected_means, rel=1e-5)
    assert list(results) == ["z_mse", "a_mse", "z_weighted_mse", "a_weighted_mse"]


def test_only_weighted_metrics_keep_their_names():
    results = results_of(
        [A, B], [C, D], WEIGHTS, NAMES, weighted_metrics={"a": ["mse"]}
    )
    assert results == {"a_mse": pytest.approx(weighted(B, D, WEIGHTS), rel=1e-5)}


def test_names_in_the_logs_are_unique():
    same_names = [metrics.MeanSquaredError(name="m") for _ in range(6)]
    results = results_of(A, C, metrics=same_names[:3], weighted_metrics=same_names[3:])
    names = ["m", "m_1", "m_2", "weighted_m", "weighted_m_1", "weighted_m_2"]
    assert list(results) == names


@pytest.mark.parametrize("cls", [CompileLoss, CompileMetrics])
def test_unknown_names_are_refused_before_the_first_step(cls):
    with pytest.raises(ArgumentError, match="'mes'"):
        cls(["mse", "mes"], None)


def test_metrics_exist_after_they_are_matched():
    compiled = CompileMetrics({"a": ["mse", "mae"]}, ["mse", "mse"], NAMES)
    assert compiled.metrics == compiled.variables == [] and not compiled.built
    compiled.build(*map(tensors, ([A, B], [C, D])))
    assert compiled.built
    assert [m.name for m in compiled.metrics] == ["mse", "mae", "mse", "mse"]
    before = compiled.metrics
    compiled.update_state(*map(tensors, ([A, B], [C, D])))
    assert all(a is b for a, b in zip(before, compiled.metrics, strict=True))


@pytest.mark.parametrize("argument", ["metrics", "weighted_metrics"])
@pytest.mark.parametrize("value", ["mse", metrics.MeanSquaredError()])
def test_metrics_may_be_in_containers(argument, value):
    with pytest.raises(ArgumentError, match=f"`{argument}` to be a list, tuple or"):
        results_of(A, C, **{argument: value})


@pytest.mark.parametrize(
    "arguments, y_true, y_pred, names, message",
    [
        (["mse"], [A, B], [C, D], NAMES, r"names \['z', 'a'\]; received"),
        ({"b": "mse"}, [A, B], [C, D], NAMES, "one entry for each output"),
        (["mse"], [A, B], [C, D], ["mse", "mae"], "one entry for each output"),
        ({"p": ["mse"] * 2, "q": []}, [[A, B], A], [[C, D], D], None, "one entry for"),
        (["mse"] * 3, [A, B], [C, D], None, r"structure \[\*, \*\]; received"),
        ({"p": "mse"}, [[A], B], [[C], D], None, "one entry for each output"),
        ({"p": "mse"}, {"p": [A, B]}, {"p": [C, D]}, None, "one entry for each"),
        (["mse"], None, C, None, "metrics need targets `y`; received None"),
        ([None], A, C, None, "expected a metric; received None"),
    ],
)
def test_metrics_that_do_not_match(arguments, y_true, y_pred, names, message):
    with pytest.raises(ArgumentError, match=message):
        results_of(y_true, y_pred, names=names, metrics=arguments)


@pytest.mark.parametrize("names, warned", [(["z"], True), (["what"], False)])
def test_metrics_with_an_unknown_output_name_warn(names, warned):
    arguments = {"metrics": {"what": ["mse"]}}
    if warned:
        with pytest.warns(
            UserWarning,
            match=r"metrics are for \['what'\], but they are applied to the only",
        ):
            results = results_of(A, C, names=names, **arguments)
    else:
        results = results_of(A, C, names=names, **arguments)
    assert results["mse"] == pytest.approx(float(mse(A, C)), rel=1e-5)


def test_wrong_target_shape_error_names_metric_and_output():
    with pytest.raises(ShapeError, match=r"mse.*'a'.*\(4, 7\)"):
        results_of([A, np.zeros((4, 7))], [C, D], names=NAMES, metrics=["mse", "mse"])
