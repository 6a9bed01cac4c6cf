"""Test that a file's state is loaded completely or not at all."""

import warnings

import numpy as np
import pytest

import toolkit
from toolkit import layers
from toolkit.errors import ModelFileError
from toolkit.models.saving.state import groups_of, load_state


class Stored:
    """A stand-in for an array in a file: its shape is known before it is read."""

    def __init__(self, array):
        self.array, self.shape = np.asarray(array), np.shape(array)
        self.reads = 0

    def read(self):
        self.reads += 1
        return self.array


def make(units=2, optimizer=None):
    model = toolkit.Sequential([toolkit.Input((3,)), layers.Dense(units), Own()])
    if optimizer is not None:
        model.compile(optimizer, "mse")
    return model


class Own(layers.Layer):
    """A layer with custom loading."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.number = self.add_weight(shape=(), initializer="zeros", name="number")

    def call(self, inputs):
        return inputs + self.number

    def save_own_variables(self, store):
        store["mine"] = self.number.numpy()

    def load_own_variables(self, store):
        self.number.assign(store["mine"])


def stored(model):
    """Return the content of a model's file."""
    return {
        f"{group}/{key}": Stored(array)
        for group, (_, arrays) in groups_of(model).items()
        for key, array in arrays.items()
    }


def values(model):
    return [v.numpy().tolist() for v in model.variables]


def filled(model, value=7.0):
    model.set_weights([np.full(w.shape, value) for w in model.get_weights()])
    return model


DENSE, OWN_PATH = "layers/dense/vars", "layers/own/vars"


def test_groups_of_parts():
    model = make(optimizer="sgd")
    groups = groups_of(model)
    assert {"vars", DENSE, OWN_PATH, "optimizer/vars"} == set(groups)
    name, arrays = groups[DENSE]
    assert name == model.layers[0].name
    assert [a.shape for a in arrays.values()] == [(3, 2), (2,)]
    assert DENSE not in groups_of(model, [model.layers[0]])


def test_state_of_the_model():
    class Mine(toolkit.Model):
        def __init__(self):
            super().__init__()
            self.scale = self.add_weight(shape=(2,), initializer="zeros")

        def call(self, x):
            return x * self.scale

    model = Mine()
    model.build((None, 2))
    assert list(stored(model)) == ["vars/0"]
    load_state(model, {"vars/0": Stored([1.0, 2.0])}, "file")
    assert model.scale.numpy().tolist() == [1.0, 2.0]
    with pytest.raises(ModelFileError, match=r"vars/0: expected .*\(2,\)"):
        load_state(model, {"vars/0": Stored([1.0])}, "file")


def test_all_matching_state_is_loaded():
    model, other = make(), filled(make())
    datasets = stored(other)
    load_state(model, datasets, "file")
    assert values(model) == values(other)
    assert {d.reads for d in datasets.values()} == {1}


def changed(datasets, remove=(), **arrays):
    remaining = {path: d for path, d in datasets.items() if path not in remove}
    return remaining | {path: Stored(array) for path, array in arrays.items()}


# the error of a file -> (a function of its datasets, the message)
WRONG = {
    "missing": (
        lambda d: changed(d, [f"{DENSE}/1"]),
        r"dense/vars/1: missing in the file; expected .* of shape \(2,\)",
    ),
    "another shape": (
        lambda d: changed(d, **{f"{DENSE}/0": np.ones((4, 2))}),
        r"dense/vars/0: expected .*\(3, 2\); the file has \(4, 2\)",
    ),
    "more in a part": (
        lambda d: changed(d, **{f"{DENSE}/2": np.ones(5)}),
        r"dense/vars/2: unexpected, of shape \(5,\); dense.* has no such",
    ),
    "what a part cannot read": (
        lambda d: changed(d, [f"{OWN_PATH}/mine"], **{f"{OWN_PATH}/odd": 1.0}),
        "own/vars: 'mine'",
    ),
    "what does not fit a part": (
        lambda d: changed(d, **{f"{OWN_PATH}/mine": np.ones(3)}),
        r"own/vars: .*\(3,\)",
    ),
    "a part more": (
        lambda d: changed(d, **{"layers/dense_1/vars/0": np.ones(5)}),
        r"dense_1/vars/0: unexpected, of shape \(5,\); the model has no such layer",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_mismatch_is_reported_and_changes_nothing(case):
    change, message = WRONG[case]
    model = make()
    before = values(model)
    with pytest.raises(ModelFileError, match=f"'the file' does not fit.*\n.*{message}"):
        load_state(model, change(stored(filled(make()))), "the file")
    assert values(model) == before


@pytest.mark.parametrize("case", WRONG)
def test_mismatch_may_be_skipped(case):
    change, message = WRONG[case]
    model = make()
    before = values(model)
    with pytest.warns(
        UserWarning, match=f"these weights are unchanged:\n.*{message}"
    ) as caught:
        load_state(model, change(stored(filled(make()))), "file", skip_mismatch=True)
    assert str(caught[0].message).count("\n") == 1  # reported once
    is_unchanged = {
        "dense": values(model)[:2] == before[:2],
        "own": values(model)[2] == 0.0,
    }
    assert [path for path in is_unchanged if is_unchanged[path]] == [
        path for path in is_unchanged if f"{path}/vars" in message
    ]


def test_every_problem_is_reported_in_order():
    model = make()
    datasets = changed(
        stored(model),
        [f"{DENSE}/1"],
        **{f"{DENSE}/0": np.ones(1), "layers/a/vars/0": 1.0, "layers/b/vars/0": 1.0},
    )
    with pytest.raises(ModelFileError) as caught:
        load_state(model, datasets, "file")
    paths = [line.split(":")[0].strip() for line in str(caught.value).splitlines()[1:]]
    expected = [f"{DENSE}/0", f"{DENSE}/1", "layers/a/vars/0", "layers/b/vars/0"]
    assert paths == expected


@pytest.mark.parametrize("case", WRONG)
def test_file_may_contain_more_parts_on_request(case):
    change, message = WRONG[case]
    model = make()
    datasets = change(stored(filled(make())))
    if case == "a part more":
        with pytest.warns(UserWarning, match=message):
            load_state(model, datasets, "file", may_hold_more=True)
        assert values(model) == values(filled(make()))
        return
    before = values(model)
    with pytest.raises(ModelFileError, match=message):
        load_state(model, datasets, "file", may_hold_more=True)
    assert values(model) == before


def test_skipped_parts_are_neither_changed_nor_required():
    model = make()
    before = values(model)
    load_state(model, stored(filled(make())), "file", skip=[model.layers[0]])
    assert values(model)[:2] == before[:2] and values(model)[2] == 7.0
    restored = stored(filled(make(5)))
    load_state(model, restored, "file", skip=[model.layers[0]])
    with pytest.raises(ModelFileError, match="dense/vars/0"):
        load_state(model, restored, "file", skip=[model.layers[1]])


def test_files_of_earlier_versions_have_other_names():
    model, datasets = make(), stored(filled(make()))
    old = "_layer_checkpoint_dependencies"
    moved = {p.replace("layers", old): d for p, d in datasets.items()}
    load_state(model, moved, "file")
    assert values(model) == values(filled(make()))

    class Block(layers.Layer):
        def __init__(self):
            super().__init__()
            self._inner = layers.Dense(2)

        def call(self, x):
            return self._inner(x)

    model = toolkit.Sequential([toolkit.Input((3,)), Block()])
    path = "layers/block/_inner/vars"
    assert path in groups_of(model)
    for name in (path, path.replace("_inner", "inner")):
        bias = np.array([1.0, len(name)])
        arrays = {f"{name}/0": Stored(np.ones((3, 2))), f"{name}/1": Stored(bias)}
        load_state(model, arrays, "file")
        assert model.weights[1].numpy().tolist() == bias.tolist()


# --- optimizers -----------------------------------------------------------------------


def trained(optimizer):
    model = filled(make(optimizer=optimizer))
    model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    return model


def test_built_optimizer_loads_its_state():
    model, other = make(optimizer="adam"), trained("adam")
    with pytest.warns(UserWarning, match="not built yet"):
        load_state(model, stored(other), "file")
    assert not model.optimizer.built
    model.optimizer.build(model.trainable_variables)
    load_state(model, stored(other), "file")
    for a, b in zip(model.optimizer.variables, other.optimizer.variables, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_file_without_an_optimizer_keeps_the_optimizer():
    model = make(optimizer="adam")
    datasets = {p: d for p, d in stored(trained("adam")).items() if "optim" not in p}
    load_state(model, datasets, "file")
    assert not model.optimizer.built and values(model)[2] != 0.0


def test_model_without_an_optimizer_loads_the_remaining_state():
    model, other = make(), trained("adam")
    load_state(model, stored(other), "file")
    assert values(model) == values(other)[:3]


def test_state_of_another_optimizer_is_refused():
    model = trained("sgd")
    before = [v.numpy().tolist() for v in model.optimizer.variables]
    other = trained("adam")
    with pytest.warns(UserWarning, match="'sgd.* keeps its current state"):
        load_state(model, stored(other), "file")
    assert [v.numpy().tolist() for v in model.optimizer.variables] == before
    assert values(model)[:3] == values(other)[:3]


def test_each_built_optimizer_loads_its_state():
    class Two(toolkit.Model):
        def __init__(self):
            super().__init__()
            self.inner, self.second = layers.Dense(1), toolkit.optimizers.Adam()

        def call(self, x):
            return self.inner(x)

    def build():
        model = Two()
        model.compile("sgd", "mse")
        model.build((None, 3))
        return model

    model, other = build(), build()
    other.optimizer.build(other.trainable_variables)
    other.second.build(other.trainable_variables)
    other.second.iterations.assign(1)
    model.optimizer.build(model.trainable_variables)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load_state(model, stored(other), "file")
    assert not model.second.built
    assert [str(w.message).split("'")[1] for w in caught] == [model.second.name]


@pytest.mark.parametrize("adapted", [False, True])
def test_adapted_layer_is_compared_only_if_it_is_not_adapted(adapted):
    model = toolkit.Sequential([toolkit.Input((3,)), layers.Dense(2)])
    if adapted:
        model.layers[0].enable_lora(1)
    datasets = stored(model)
    load_state(model, datasets, "file")
    with pytest.raises(ModelFileError):
        load_state(model, changed(datasets, **{f"{DENSE}/0": np.ones(7)}), "file")
