"""Test that tensor parallel training gives the same bits on a mesh of any shape."""

import pytest

from tests.distribution.jobs import run, run_sizes
from toolkit.distribution import DeviceMesh, LayoutMap, ModelParallel
from toolkit.errors import ArgumentError

TRAINING = """
    shape = tuple(map(int, sys.argv[1:3]))
    mesh = distribution.DeviceMesh(shape, ["batch", "model"])
    layouts = distribution.LayoutMap(mesh)
    layouts[".*up/kernel"] = (None, "model")
    layouts[".*up/bias"] = ("model",)
    layouts[".*down/kernel"] = ("model", None)
    layouts[".*(query|key|value)/kernel"] = (None, "model", None)
    layouts[".*(query|key|value)/bias"] = ("model", None)
    layouts[".*attention_output/kernel"] = ("model", None, None)
    parts = {"batch": 4, "model": 4}
    strategy = distribution.ModelParallel(layout_map=layouts, shards=parts)
    distribution.set_distribution(strategy)
    tk.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    x, y = random.integers(0, 50, (43, 6)).astype("int32"), random.integers(0, 3, 43)

    def train(**options):
        tokens = tk.Input((6,), dtype="int32")
        h = layers.Embedding(50, 16)(tokens)
        h = h + layers.MultiHeadAttention(4, 4, dropout=0.1)(h, h)
        h = layers.LayerNormalization()(h)
        h = layers.Dense(32, "gelu", name="up", kernel_regularizer="l2")(h)
        h = layers.LayerNormalization()(h)  # over the split axis
        h = layers.Dropout(0.2)(h)
        h = layers.BatchNormalization()(layers.Dense(8, name="down")(h))
        h = layers.GlobalAveragePooling1D()(h)
        model = tk.Model(tokens, layers.Dense(3, activation="softmax")(h))
        optimizer = tk.optimizers.Adam(0.01, global_clipnorm=0.5, **options)
        loss = "sparse_categorical_crossentropy"
        model.compile(optimizer, loss, metrics=["accuracy"])
        history = model.fit(x, y, batch_size=8, epochs=2, verbose=0).history
        return [history, state_of(model), digest(model.predict(x, verbose=0))]

    tell([train(), train(gradient_accumulation_steps=4)])
"""


def reports_of(folder, *shape):
    path = folder / "x".join(map(str, shape))
    path.mkdir()
    limits = {"timeout": 100, "seconds": 240}  # for a busy machine
    return run(path, shape[0] * shape[1], TRAINING, *map(str, shape), **limits)


def test_one_hash_for_any_mesh(tmp_path):
    (expected,) = reports_of(tmp_path, 1, 1)
    for shape in ((1, 2), (2, 2)):
        assert all(r == expected for r in reports_of(tmp_path, *shape)), shape


@pytest.mark.slow
def test_one_hash_for_more_meshes(tmp_path):
    (expected,) = reports_of(tmp_path, 1, 1)
    for shape in ((2, 1), (4, 1), (1, 4), (3, 1)):
        assert all(r == expected for r in reports_of(tmp_path, *shape)), shape


def test_parts_of_axes():
    mesh = DeviceMesh((2, 2), ["data", "model"], [f"cpu:{i}" for i in range(4)])
    layouts = LayoutMap(mesh)

    def parallel(shards):
        return ModelParallel(layout_map=layouts, shards=shards)

    assert (parallel(None).shards, parallel(6).shards) == (2, 6)
    both = parallel({"data": 3, "model": 4})
    assert both.shards == 3 and both.axis_shards == {"model": 4}
    assert parallel({"model": 4}).shards == 2
    for wrong, words in (
        ({"batch": 4}, r"of the axes \['data', 'model'\]; received 'batch'"),
        (1, "'data' to be at least its 2 devices; received 1"),
        (2.5, "received 2.5"),
        ({"model": 3}, "'model' to be a multiple of its 2 devices; received 3"),
    ):
        with pytest.raises(ArgumentError, match=words):
            parallel(wrong)


CLIPPED = """
    mesh = distribution.DeviceMesh((size,), ["batch"])
    layouts = distribution.LayoutMap(mesh)
    layouts[".*kernel"] = ("batch", None)
    strategy = distribution.ModelParallel(layout_map=layouts, shards=4)
    distribution.set_distribution(strategy)
    tk.utils.set_random_seed(0)
    x = np.random.default_rng(0).random((43, 16), "float32")
    model = tk.Sequential([layers.Dense(16, "relu"), layers.Dense(1)])
    model.compile(tk.optimizers.Adam(0.01, clipnorm=0.1), "mse")
    model.fit(x, x[:, :1], batch_size=8, epochs=2, verbose=0)
    tell(state_of(model))
"""


def test_norms_of_sharded_weights_have_one_hash(tmp_path):
    """One process adds the squares of the same leaves as two processes."""
    assert len(set(run_sizes(tmp_path, (1, 2), CLIPPED))) == 1
