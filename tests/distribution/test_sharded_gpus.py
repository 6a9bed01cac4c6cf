"""Tensor parallel training and sharded weights on simulated GPUs."""

import pytest

from tests.backends.cuda.host import GXX
from tests.comm.nccl_ranks import GCC, WHY_NOT
from tests.distribution.gpu_scripts import BEGIN

pytestmark = [
    pytest.mark.skipif(GCC is None, reason=WHY_NOT),
    pytest.mark.skipif(GXX is None, reason="g++ is not installed"),
]


def check_one_hash(train, model, layouts, shapes):
    """Compare meshes with one process; each captured step is one launch."""
    options = {"layouts": layouts, "optimizer": {"clipnorm": 0.1}}
    ((expected, _),) = train(model, 1, mesh=[1, 1], **options)
    for shape in shapes:
        for results, facts in train(model, shape[0] * shape[1], mesh=shape, **options):
            assert results == expected, shape
            assert not facts["warned"]
            # The last batch of an epoch has one row, so most ranks have none.
            for step in facts["steps"][-6:]:
                assert set(step) == {"replay", "copy"}, step
                assert step["replay"] == 1


@pytest.mark.parametrize(
    "layouts, shapes",
    [
        ("tensor", [(1, 2)]),
        pytest.param("tensor", [(2, 2)], marks=pytest.mark.slow),
        # Three ranks have unequal shards.
        ("stored", [(2, 1), (3, 1)]),
        ("both", [(2, 2)]),
    ],
)
def test_one_hash_for_any_mesh(train_on_gpus, layouts, shapes):
    check_one_hash(train_on_gpus, "pair", layouts, shapes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model, layouts, shapes",
    [("gpt", "tensor", [(1, 2), (2, 2), (1, 4)]), ("cnn", "stored", [(2, 1), (4, 1)])],
)
def test_other_models_have_one_hash(train_on_gpus, model, layouts, shapes):
    check_one_hash(train_on_gpus, model, layouts, shapes)


@pytest.mark.slow
def test_captured_steps_and_copies_through_the_host_have_equal_bits(train_on_gpus):
    options = {"mesh": (2, 2), "layouts": "both"}
    expected = train_on_gpus("pair", 4, **options)
    for others in ({"captures": False}, {"nccl": None}):
        reports = train_on_gpus("pair", 4, **options, **others)
        assert [r for r, _ in reports] == [r for r, _ in expected], others


FILES = (
    BEGIN
    + """
mesh = distribution.DeviceMesh((2, 2), ["batch", "model"])
layouts = distribution.LayoutMap(mesh)
layouts[".*first/kernel"] = ("batch", "model")
layouts[".*first/bias"] = ("model",)
layouts[".*dense.*/kernel"] = ("model", "batch")
parallel = distribution.ModelParallel(layout_map=layouts)
model = fit(parallel, units=8)
sharded = [
    v for v in [*model.variables, *model.optimizer.variables] if v.placement is not None
]
assert len(sharded) == 9, "three weights, and two slots of each"
assert all(type(v._tensor._array) is gpus.OpaqueArray for v in sharded)
weight = model.trainable_variables[0]
assert weight.device == weight.value.device == "gpu:0"
assert float(tk.ops.sum(weight.value)) == float(tk.ops.sum(weight.numpy()))
model.save("model.keras")
hashes = save_and_restore(model)
copy = tk.models.load_model("model.keras")
both = []
for one in (model, copy):  # the next step has new buffers
    one.fit(np.ones((9, 4), "float32"), np.ones((9, 1), "float32"), verbose=0)
    both.append(state_of(one))
tell([*hashes, *both])
"""
)


def test_sharded_weights_are_saved_and_restored(run_on_gpus):
    reports = run_on_gpus(FILES, 4)
    assert all(report == reports[0] for report in reports)
    values, loaded, restored, state, restored_state, *both = reports[0]
    trained, trained_copy = both
    assert loaded == restored == values
    assert restored_state == state
    assert trained == trained_copy != state
