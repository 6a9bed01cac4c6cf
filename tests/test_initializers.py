"""Tests of initializers: values, names, configs, and refused arguments."""

import math
import subprocess
import sys

import numpy as np
import pytest

import toolkit
from toolkit import Variable, errors, initializers, random
from toolkit.functions.decorator import function

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

    single = values(1)[0]
    assert values(1, 2) == [single, single] and values(2)[0] != single
    first, second = values(random.SeedGenerator(1), 2)
    assert first == single != second
    random.set_random_seed(7)
    drawn_pairs = values(None, 2), values(None)
    assert drawn_pairs[0][0] == drawn_pairs[0][1] != drawn_pairs[1][0]
    random.set_random_seed(7)
    assert drawn_pairs == (values(None, 2), values(None))


def test_values_do_not_depend_on_hash_randomisation():
    code = (
        "import toolkit; toolkit.random.set_random_seed(1);"
        "print(toolkit.initializers.get('glorot_uniform')((2, 2)).numpy().tolist())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_variables_have_values_inside_a_trace():
    initial_values = []

    @function
    def step(x):
        if not initial_values:
            initial_values.append(
                Variable(initializers.Orthogonal(seed=1), shape=(2, 2))
            )
        return x + initial_values[0]

    y = step(np.zeros((2, 2), np.float32))
    np.testing.assert_array_equal(y, initializers.Orthogonal(seed=1)((2, 2)))


# The first halves of the windows of 7 and of 6 points, from scipy.signal.windows.
WINDOWS = {
    "barthann": (0.0, 0.27, 0.73, 1.0, 0.0, 0.358574, 0.879426),
    "bartlett": (0.0, 0.333333, 0.666667, 1.0, 0.0, 0.4, 0.8),
    "blackman": (0.0, 0.13, 0.63, 1.0, 0.0, 0.20077, 0.84923),
    "blackmanharris": (6e-05, 0.055645, 0.520575, 1.0, 6e-05, 0.103011, 0.793834),
    "bohman": (0.0, 0.108998, 0.608998, 1.0, 0.0, 0.179124, 0.834311),
    "boxcar": (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
    "cosine": (0.222521, 0.62349, 0.900969, 1.0, 0.258819, 0.707107, 0.965926),
    "exponential": (0.049787, 0.135335, 0.367879, 1.0, 0.082085, 0.22313, 0.606531),
    "flattop": (-0.000421, -0.051263, 0.198211, 1.0, -0.000421, -0.067714, 0.606872),
    "hamming": (0.08, 0.31, 0.77, 1.0, 0.08, 0.397852, 0.912148),
    "hann": (0.0, 0.25, 0.75, 1.0, 0.0, 0.345492, 0.904508),
    "lanczos": (0.0, 0.413497, 0.826993, 1.0, 0.0, 0.504551, 0.935489),
    "nuttall": (0.000363, 0.061334, 0.52923, 1.0, 0.000363, 0.110515, 0.798258),
    "parzen": (0.005831, 0.157434, 0.650146, 1.0, 0.009259, 0.25, 0.861111),
    "taylor": (0.290095, 0.578213, 0.878008, 1.0, 0.306347, 0.662065, 0.957002),
    "triang": (0.25, 0.5, 0.75, 1.0, 0.166667, 0.5, 0.833333),
    "tukey": (0.0, 0.75, 1.0, 1.0, 0.0, 0.904508, 1.0),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name):
    from toolkit.initializers.fourier import window_of

    odd, even = np.array(WINDOWS[name][:4]), np.array(WINDOWS[name][4:])
    expected = np.concatenate([odd, odd[-2::-1]])
    np.testing.assert_allclose(window_of(name, 7), expected, atol=1e-6)
    np.testing.assert_allclose(
        window_of(name, 6, periodic=True), expected[:-1], atol=1e-6
    )
    expected = np.concatenate([even, even[::-1]])
    np.testing.assert_allclose(window_of(name, 6), expected, atol=1e-6)
    assert window_of(name, 1).tolist() == [1]


@pytest.mark.parametrize("scaling", [None, "density", "spectrum"])
def test_stft_kernels_transform(scaling):
    window = np.arange(1.0, 7)
    sums = {None: 1, "density": np.sqrt((window**2).sum()), "spectrum": window.sum()}
    x = np.random.default_rng(0).normal(size=6)
    y = np.fft.rfft(x * window / sums[scaling], 16)
    for side, expected in (("real", y.real), ("imag", y.imag)):
        kernel = initializers.STFT(side, list(window), scaling)((6, 1, 9), "float64")
        np.testing.assert_allclose(x @ kernel.numpy()[:, 0], expected, atol=1e-12)
    assert type(initializers.get("stft")) is initializers.STFTInitializer
    initializer = initializers.STFT("imag", window, scaling, True)
    assert (
        initializers.get(initializers.serialize(initializer)).get_config()
        == initializer.get_config()
    )
    with pytest.raises(errors.ShapeError, match="window of shape"):
        initializer((7, 1, 9))
    for wrong in ({"side": "left"}, {"window": "no"}, {"scaling": "l2"}):
        with pytest.raises(errors.ArgumentError, match="expected one of"):
            initializers.STFT(**wrong)


# --- names and configs --------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_names_and_configs(name):
    cls = getattr(initializers, name)
    snake = toolkit.core.naming.to_snake_case(name)
    assert type(initializers.get(name)) is type(initializers.get(snake)) is cls
    assert getattr(initializers, snake) is cls
    initializer = cls(seed=3) if name in RANDOM else cls()
    config = initializers.serialize(initializer)
    assert config["module"] == "keras.initializers"
    for restored in (
        initializers.get(config),
        initializers.deserialize(config),
        initializers.get({"class_name": snake, "config": initializer.get_config()}),
        initializer.clone(),
    ):
        assert type(restored) is cls
        assert restored.get_config() == initializer.get_config()
        np.testing.assert_array_equal(restored((3, 3)), initializer((3, 3)))


def test_configs_keep_every_argument():
    for initializer in (
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
        restored = initializers.get(initializers.serialize(initializer))
        np.testing.assert_array_equal(restored((3, 3)), initializer((3, 3)))
        assert repr(restored) == repr(initializer)


def test_config_includes_the_generator():
    initializer = initializers.HeNormal(random.SeedGenerator(5, name="mine"))
    restored = initializers.get(initializers.serialize(initializer))
    assert isinstance(restored.seed, random.SeedGenerator)
    assert restored.seed.get_config() == {"seed": 5, "name": "mine"}
    np.testing.assert_array_equal(restored((2, 2)), initializer((2, 2)))


def test_get_accepts_names_classes_and_configs():
    assert initializers.get(None) is None
    initializer = initializers.Zeros()
    assert initializers.get(initializer) is initializer
    assert isinstance(initializers.get(initializers.Ones), initializers.Ones)
    assert initializers.get(max) is max
    for value in (np.arange(3), Variable([0.0, 1, 2]), toolkit.ops.arange(3)):
        x = initializers.get(value)((3,), "float32")
        assert (x.dtype, x.numpy().tolist()) == ("float32", [0, 1, 2])
    with pytest.raises(errors.ShapeError, match=r"shape \(2,\); received shape \(3,\)"):
        initializers.get(np.arange(3))((2,))


def test_custom_objects():
    class Threes(initializers.Initializer):
        def __call__(self, shape, dtype=None):
            return toolkit.ops.full(shape, 3, dtype)

    with toolkit.serialization.custom_object_scope({"Threes": Threes}):
        initializer = initializers.get("Threes")
    assert initializer((1,)).item() == 3
    config = initializers.serialize(initializer)
    restored = initializers.deserialize(config, {"Threes": Threes})
    assert isinstance(restored, Threes) and repr(restored) == "Threes()"


def test_bad_input():
    with pytest.raises(errors.ArgumentError, match="did you mean 'he_normal'"):
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
