"""Initializers: values, names, configs, and what they refuse."""

import math
import subprocess
import sys

import numpy as np
import pytest

import toolkit
from toolkit import Variable, errors, initializers, random
from toolkit.functions import function

RANDOM = (
    *("GlorotNormal", "GlorotUniform", "HeNormal", "HeUniform", "LecunNormal"),
    *("LecunUniform", "Orthogonal", "RandomNormal", "RandomUniform"),
    *("TruncatedNormal", "VarianceScaling"),
)
ALL = (*RANDOM, "Constant", "Identity", "Ones", "Zeros")


# --- values -------------------------------------------------------------------------


def test_constant_values():
    assert initializers.Zeros()((2, 3)).numpy().tolist() == [[0] * 3] * 2
    assert initializers.Ones()((), "int32").item() == 1
    assert initializers.Constant(2.5)((2,), "float64").numpy().tolist() == [2.5, 2.5]
    rows = initializers.Constant([1, 2])((2, 2)).numpy()
    assert (rows.dtype, rows.tolist()) == (np.float32, [[1, 2], [1, 2]])
    assert initializers.Identity(3)((2, 3)).numpy().tolist() == [[3, 0, 0], [0, 3, 0]]


SHAPE = (50, 80)
VARIANCES = {
    "GlorotNormal": 2 / 130,
    "GlorotUniform": 2 / 130,
    "HeNormal": 2 / 50,
    "HeUniform": 2 / 50,
    "LecunNormal": 1 / 50,
    "LecunUniform": 1 / 50,
    "RandomNormal": 0.05**2,
    "RandomUniform": 0.1**2 / 12,
    "TruncatedNormal": (0.05 * 0.87962566) ** 2,
    "VarianceScaling": 1 / 50,
    "Orthogonal": 1 / 80,
}


@pytest.mark.parametrize("name", RANDOM)
def test_mean_and_variance(name):
    x = getattr(initializers, name)(seed=1)(SHAPE)
    assert (x.shape, x.dtype) == (SHAPE, "float32")
    stddev = math.sqrt(VARIANCES[name])
    assert abs(x.numpy().mean()) < 5 * stddev / math.sqrt(x.size)
    assert abs(x.numpy().std() / stddev - 1) < 0.05


@pytest.mark.parametrize("mode, n", [("fan_in", 50), ("fan_out", 80), ("fan_avg", 65)])
@pytest.mark.parametrize(
    "distribution", ["normal", "truncated_normal", "untruncated_normal", "uniform"]
)
def test_variance_scaling(mode, n, distribution):
    make = initializers.VarianceScaling(3.0, mode, distribution, seed=1)
    x = make(SHAPE).numpy()
    stddev = math.sqrt(3 / n)
    assert abs(x.std() / stddev - 1) < 0.05
    limit = {"uniform": math.sqrt(3), "untruncated_normal": 6}.get(distribution, 2.28)
    assert abs(x).max() <= limit * stddev
    if distribution == "untruncated_normal":
        assert abs(x).max() > 3 * stddev


@pytest.mark.parametrize(
    "shape, axes, expected",
    [
        ((), {}, (1, 1)),
        ((7,), {}, (7, 7)),
        ((3, 4), {}, (3, 4)),
        ((3, 3, 8, 16), {}, (72, 144)),
        ((2, 3, 4), {"input_axes": (0, 1), "output_axes": (2,)}, (6, 4)),
        ((2, 3, 4), {"input_axes": (0, 1)}, (6, 8)),
    ],
)
def test_fans(shape, axes, expected):
    from toolkit.initializers.random import compute_fans

    assert compute_fans(shape, **axes) == expected


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5), (3, 2, 4)])
def test_orthogonal(shape):
    x = initializers.Orthogonal(gain=2.0, seed=1)(shape).numpy().reshape(-1, shape[-1])
    product = x.T @ x if x.shape[0] >= x.shape[1] else x @ x.T
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-5)


def test_other_dtypes():
    for dtype in ("bfloat16", "float16", "float64"):
        for name in ALL:
            assert getattr(initializers, name)()((4, 4), dtype).dtype == dtype


# --- seeds --------------------------------------------------------------------------


@pytest.mark.parametrize("name", RANDOM)
def test_seeds(name):
    cls = getattr(initializers, name)

    def values(seed, calls=1):
        make = cls(seed=seed)
        return [make((3, 4)).numpy().tolist() for _ in range(calls)]

    once = values(1)[0]
    assert values(1, 2) == [once, once] and values(2)[0] != once
    first, second = values(random.SeedGenerator(1), 2)
    assert first == once != second
    random.set_random_seed(7)
    drawn = values(None, 2), values(None)
    assert drawn[0][0] == drawn[0][1] != drawn[1][0]
    random.set_random_seed(7)
    assert drawn == (values(None, 2), values(None))


def test_values_do_not_depend_on_hash_randomisation():
    code = (
        "import toolkit; toolkit.random.set_random_seed(1);"
        "print(toolkit.initializers.get('glorot_uniform')((2, 2)).numpy().tolist())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_variables_are_initialized_for_real_inside_a_trace():
    made = []

    @function
    def step(x):
        if not made:
            made.append(Variable(initializers.Orthogonal(seed=1), shape=(2, 2)))
        return x + made[0]

    y = step(np.zeros((2, 2), np.float32))
    np.testing.assert_array_equal(y, initializers.Orthogonal(seed=1)((2, 2)))


# --- names and configs --------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_names_and_configs(name):
    cls = getattr(initializers, name)
    snake = toolkit.naming.to_snake_case(name)
    assert type(initializers.get(name)) is type(initializers.get(snake)) is cls
    assert getattr(initializers, snake) is cls
    made = cls(seed=3) if name in RANDOM else cls()
    config = initializers.serialize(made)
    assert config["module"] == "keras.initializers"
    for again in (
        initializers.get(config),
        initializers.deserialize(config),
        initializers.get({"class_name": snake, "config": made.get_config()}),
        made.clone(),
    ):
        assert type(again) is cls
        assert again.get_config() == made.get_config()
        np.testing.assert_array_equal(again((3, 3)), made((3, 3)))


def test_configs_keep_every_argument():
    for made in (
        initializers.RandomNormal(1.0, 2.0, 3),
        initializers.TruncatedNormal(1.0, 2.0, 3),
        initializers.RandomUniform(1.0, 2.0, 3),
        initializers.VarianceScaling(2.0, "fan_out", "uniform", 3, (0,), (1,)),
        initializers.HeNormal(3, (0,), (1,)),
        initializers.Orthogonal(2.0, 3),
        initializers.Identity(2.0),
        initializers.Constant(2.0),
        initializers.Constant(np.arange(3.0)),
    ):
        again = initializers.get(initializers.serialize(made))
        np.testing.assert_array_equal(again((3, 3)), made((3, 3)))
        assert repr(again) == repr(made)


def test_a_generator_is_part_of_the_config():
    made = initializers.HeNormal(random.SeedGenerator(5, name="mine"))
    again = initializers.get(initializers.serialize(made))
    assert isinstance(again.seed, random.SeedGenerator)
    assert again.seed.get_config() == {"seed": 5, "name": "mine"}
    np.testing.assert_array_equal(again((2, 2)), made((2, 2)))


def test_what_get_takes():
    assert initializers.get(None) is None
    made = initializers.Zeros()
    assert initializers.get(made) is made
    assert isinstance(initializers.get(initializers.Ones), initializers.Ones)
    assert initializers.get(max) is max
    for value in (np.arange(3), Variable([0.0, 1, 2]), toolkit.ops.arange(3)):
        x = initializers.get(value)((3,), "float32")
        assert (x.dtype, x.numpy().tolist()) == ("float32", [0, 1, 2])
    with pytest.raises(errors.ShapeError, match=r"shape \(3,\), the weight \(2,\)"):
        initializers.get(np.arange(3))((2,))


def test_custom_objects():
    class Threes(initializers.Initializer):
        def __call__(self, shape, dtype=None):
            return toolkit.ops.full(shape, 3, dtype)

    with toolkit.serialization.custom_object_scope({"Threes": Threes}):
        made = initializers.get("Threes")
    assert made((1,)).item() == 3
    config = initializers.serialize(made)
    again = initializers.deserialize(config, {"Threes": Threes})
    assert isinstance(again, Threes) and repr(again) == "Threes()"


def test_bad_input():
    with pytest.raises(errors.ArgumentError, match="expected one of .*'he_normal'"):
        initializers.get("he_norm")
    with pytest.raises(errors.ArgumentError, match="received 3"):
        initializers.get(3)
    with pytest.raises(errors.ArgumentError, match="scale > 0; received 0"):
        initializers.VarianceScaling(0)
    with pytest.raises(errors.ArgumentError, match="mode: expected one of 'fan_avg'"):
        initializers.VarianceScaling(mode="fan")
    with pytest.raises(errors.ArgumentError, match="distribution: expected one of"):
        initializers.VarianceScaling(distribution="gamma")
    with pytest.raises(errors.ArgumentError, match="HeNormal: expected seed"):
        initializers.HeNormal("seed")
    with pytest.raises(errors.ShapeError, match="Identity: expected a shape of 2"):
        initializers.Identity()((2, 2, 2))
    with pytest.raises(errors.ShapeError, match="Orthogonal: expected 2 axes"):
        initializers.Orthogonal()((2,))
    with pytest.raises(errors.ArgumentError, match="known extents"):
        initializers.Zeros()((None, 2))
    with pytest.raises(errors.DTypeError, match="floating dtype; received int32"):
        initializers.HeNormal()((2, 2), "int32")
    with pytest.raises(NotImplementedError, match="Initializer does not define"):
        initializers.Initializer()((2,))
