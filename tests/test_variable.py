"""Variables: values, assignment, names, and where they may be created."""

import copy
import pickle

import numpy as np
import pytest

import toolkit
from tests.helpers import assert_close
from toolkit import naming, ops
from toolkit.errors import ArgumentError, DTypeError, ShapeError
from toolkit.tensor import Tensor, state
from toolkit.variable import Variable, commit_all

A = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


def zeros(shape, dtype=None):
    return ops.zeros(shape, dtype)


@pytest.mark.parametrize(
    "arguments, shape, dtype",
    [
        ({"initializer": 1.0}, (), "float32"),
        ({"initializer": 3}, (), "int32"),
        ({"initializer": A}, (2, 2), "float32"),
        ({"initializer": A, "dtype": "float16"}, (2, 2), "float16"),
        ({"initializer": [[1, 2]], "shape": (1, 2)}, (1, 2), "int32"),
        ({"initializer": zeros, "shape": (2, 3)}, (2, 3), "float32"),
        ({"initializer": zeros, "shape": (2,), "dtype": "int8"}, (2,), "int8"),
    ],
)
def test_creation(arguments, shape, dtype):
    v = Variable(**arguments)
    assert (v.shape, v.dtype, v.ndim) == (shape, dtype, len(shape))
    assert v.size == np.prod(shape)
    assert v.trainable and v.constraint is None and v.regularizer is None


@pytest.mark.parametrize(
    "arguments, error",
    [
        ({"initializer": zeros}, ArgumentError),
        ({"initializer": A, "shape": (3,)}, ShapeError),
        ({"initializer": "zeros?"}, ArgumentError),
        ({"initializer": A, "dtype": "complex32"}, DTypeError),
        ({"initializer": A, "name": "a/b"}, ArgumentError),
        ({"initializer": A, "aggregation": "median"}, ArgumentError),
        ({"initializer": A, "synchronization": "sometimes"}, ArgumentError),
    ],
)
def test_bad_arguments(arguments, error):
    with pytest.raises(error):
        Variable(**arguments)


def test_assignment():
    v = Variable(A)
    assert_close(v.assign(A * 2), A * 2)
    assert_close(v.assign_add(1.0), A * 2 + 1)
    assert_close(v.assign_sub(np.ones((2, 2))), A * 2)
    assert v.dtype == "float32"
    assert_close(v, A * 2)


def test_assignment_converts_to_the_dtype():
    v = Variable([1, 2])
    v.assign([1.7, 2.2])
    assert v.numpy().tolist() == [1, 2]


def test_assignment_of_another_shape_names_the_variable():
    with naming.name_scope("layer"):
        v = Variable(A, name="kernel")
    with pytest.raises(ShapeError, match=r"'layer/kernel'.*\(2, 2\).*\(2,\)"):
        v.assign([1.0, 2.0])
    assert_close(v, A)


def test_what_was_handed_out_does_not_change():
    v = Variable(A)
    before, array = v.value, v.numpy()
    v.assign(A * 0)
    assert_close(before, A)
    assert_close(array, A)


def test_operators_and_indexing():
    v = Variable(A)
    assert isinstance(v + 1, Tensor)
    assert_close(2 - v, 2 - A)
    assert_close(v @ v, A @ A)
    assert_close(A @ v, A @ A)
    assert_close(v[:, 0], A[:, 0])
    assert_close(v > 2, A > 2)
    assert_close(-v, -A)
    assert_close(np.sqrt(v), np.sqrt(A))
    assert len(v) == 2
    assert float(Variable(2.5)) == 2.5 and int(Variable(2)) == 2


def test_names_and_paths():
    naming.reset_names()
    assert [Variable(0.0).name for _ in range(3)] == [
        "variable",
        "variable_1",
        "variable_2",
    ]
    with naming.name_scope("model"), naming.name_scope("dense"):
        v = Variable(0.0, name="bias")
    assert (v.name, v.path) == ("bias", "model/dense/bias")


def test_repr():
    text = repr(Variable([1.0, 2.0], name="v"))
    assert "path=v" in text and "shape=(2,)" in text and "[1. 2.]" in text


def test_autocast_reads_floats_in_the_dtype_of_the_scope():
    v, fixed = Variable(A), Variable(A, autocast=False)
    counter = Variable(0)
    state.autocast = "bfloat16"
    try:
        assert v.dtype == v.value.dtype == "bfloat16"
        assert v.read().dtype == "float32"
        assert fixed.value.dtype == "float32"
        assert counter.value.dtype == "int32"
        v.assign(A * 2)
    finally:
        state.autocast = None
    assert v.dtype == "float32"
    assert_close(v, A * 2)


def test_copies_are_independent():
    v = Variable(A)
    for other in (copy.copy(v), copy.deepcopy(v), pickle.loads(pickle.dumps(v))):
        other.assign(A * 0)
        assert_close(v, A)
        assert other.name == v.name


def test_stateless_scope_keeps_assignments_inside():
    v, w = Variable(1.0), Variable(5.0)
    with toolkit.StatelessScope([(w, 6.0)]) as scope:
        v.assign(2.0)
        assert (float(v), float(w)) == (2.0, 6.0)
    assert (float(v), float(w)) == (1.0, 5.0)
    assert float(scope.get_current_value(v)) == 2.0
    assert scope.get_current_value(Variable(0.0)) is None


def test_variables_are_hashed_by_identity():
    v, w = Variable(1.0), Variable(1.0)
    assert len({v, w, v}) == 2
    assert [v, w].index(w) in (0, 1)


def test_created_in_a_trace_with_a_computed_initializer():
    made = []

    @toolkit.function
    def f(x):
        if not made:
            made.append(Variable(lambda shape, dtype: ops.ones(shape, dtype), (2,)))
        return x * made[0]

    assert f(ops.ones((2,))).tolist() == [1.0, 1.0]
    assert made[0].numpy().tolist() == [1.0, 1.0]


def test_copies_are_independent_of_programs_that_write():
    v = Variable(np.zeros(3, "float32"))
    step = toolkit.function(lambda: v.assign_add(ops.ones((3,))))
    step()
    other = copy.copy(v)
    for _ in range(3):
        step()
    assert other.numpy().tolist() == [1.0, 1.0, 1.0]


def test_committing_the_same_buffer_twice_keeps_what_was_handed_out():
    v = Variable(np.zeros(3, "float32"))
    seen, buffer = v.numpy(), np.ones(3, "float32")
    v.commit(buffer)
    v.commit(buffer)
    assert v.spare_buffer() is not seen


def test_values_are_stored_densely():
    v = toolkit.Variable(ops.zeros((3, 4)))
    assert v.numpy().flags.c_contiguous
    v.assign(ops.transpose(ops.ones((4, 3))))
    assert v.numpy().flags.c_contiguous
    assert v.numpy().sum() == 12


def test_buffers_that_programs_write_are_aligned():
    v = Variable(np.zeros((3, 5), "float32"))
    step = toolkit.function(lambda: v.assign_add(ops.ones((3, 5))))
    for _ in range(3):
        step()
        assert v.own_buffer().ctypes.data % 64 == 0
    assert v.spare_buffer().ctypes.data % 64 == 0
    assert v.numpy().tolist() == [[3.0] * 5] * 3


def test_attributes_are_checked():
    v = toolkit.Variable(A)
    v.constraint = v.regularizer = abs
    assert v.constraint is abs
    v.overwrite_with_gradient = True
    for name in ("constraint", "regularizer"):
        with pytest.raises(ArgumentError, match=f"attribute `{name}`"):
            setattr(v, name, "text")
    with pytest.raises(TypeError, match="must be a boolean"):
        v.overwrite_with_gradient = "true"
    with pytest.raises(TypeError, match="Only scalar arrays"):
        int(v)
    with pytest.raises(ArgumentError, match="`name` must be a string"):
        toolkit.Variable(A, name=3)


def test_stateless_scopes_check_and_collect():
    v = toolkit.Variable(A)
    with pytest.raises(ArgumentError, match="must be Variable"):
        toolkit.StatelessScope([("v", A)])
    with pytest.raises(ShapeError, match="tensors with the shape"):
        toolkit.StatelessScope([(v, 1.0)])
    layer = toolkit.layers.ActivityRegularization(l2=1.0)
    with toolkit.StatelessScope(collect_losses=True) as scope:
        layer(np.ones((1, 2)))
        scope.add_update((v, 2 * A))
    assert [float(loss) for loss in scope.losses] == [2.0]
    assert not layer.losses
    np.testing.assert_array_equal(scope.get_current_value(v), 2 * A)


@pytest.mark.parametrize("interrupted", [0, 1, 2])
def test_an_interrupted_commit_is_whole(monkeypatch, interrupted):
    """Ctrl-C in the midst of it: all Variables have their new values, or none has."""
    variables = [Variable(float(i)) for i in range(3)]
    arrays = [np.full((), 10.0 + i, "float32") for i in range(3)]
    commit, calls = Variable.commit, []

    def interrupting(variable, array):
        calls.append(variable)
        if len(calls) == interrupted + 1:
            raise KeyboardInterrupt
        commit(variable, array)

    monkeypatch.setattr(Variable, "commit", interrupting)
    with pytest.raises(KeyboardInterrupt):
        commit_all(variables, arrays)
    assert [float(v) for v in variables] == [10.0, 11.0, 12.0]
