"""Tests of Variables: values, assignment, names, and where they can be created."""

import copy
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

import toolkit
from tests.helpers import assert_close, is_free
from toolkit import initializers, ops  # noqa: F401  (names of initializers)
from toolkit.backends import memory
from toolkit.core import naming, variable
from toolkit.core.locks import Locks, commit_all
from toolkit.core.tensor import Tensor, state
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, DTypeError, ShapeError, TraceError

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


def test_returned_values_do_not_change():
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
    v, uncast = Variable(A), Variable(A, autocast=False)
    counter = Variable(0)
    state.autocast = "bfloat16"
    try:
        assert v.dtype == v.value.dtype == "bfloat16"
        assert v.read().dtype == "float32"
        assert uncast.value.dtype == uncast.dtype == "float32"
        assert counter.value.dtype == "int32"
        v.assign(A * 2)
    finally:
        state.autocast = None
    assert v.dtype == "float32"
    assert_close(v, A * 2)


def test_copies_are_independent():
    v = Variable(A)
    for duplicate in (copy.copy(v), copy.deepcopy(v), pickle.loads(pickle.dumps(v))):
        duplicate.assign(A * 0)
        assert_close(v, A)
        assert duplicate.name == v.name


def test_assignments_end_with_the_stateless_scope():
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
    created = []

    @toolkit.function
    def f(x):
        if not created:
            created.append(Variable(lambda shape, dtype: ops.ones(shape, dtype), (2,)))
        return x * created[0]

    assert f(ops.ones((2,))).tolist() == [1.0, 1.0]
    assert created[0].numpy().tolist() == [1.0, 1.0]


def test_copies_are_independent_of_programs_that_write():
    v = Variable(np.zeros(3, "float32"))
    step = toolkit.function(lambda: v.assign_add(ops.ones((3,))))
    step()
    duplicate = copy.copy(v)
    for _ in range(3):
        step()
    assert duplicate.numpy().tolist() == [1.0, 1.0, 1.0]


def test_second_commit_keeps_returned_values():
    v = Variable(np.zeros(3, "float32"))
    returned, buffer = v.numpy(), np.ones(3, "float32")
    v.commit(buffer)
    v.commit(buffer)
    assert v.spare_buffer() is not returned


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
        assert v.exclusive_buffer().ctypes.data % 64 == 0
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
def test_interrupted_commit_is_atomic(monkeypatch, interrupted):
    """Check that Ctrl-C during a commit changes all Variables or none."""
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


def test_initial_value_must_exist_outside_a_trace():
    created = []

    @toolkit.function
    def f(x):
        created.append(Variable(x * 2.0))

    with pytest.raises(TraceError, match="must not depend on the traced function"):
        f(ops.ones((2,)))


def test_a_function_creates_no_variable_in_each_call():
    @toolkit.function
    def f(x):
        return x * Variable(1.0)

    with pytest.raises(TraceError, match="creat"):
        f(ops.ones((2,)))


@pytest.mark.parametrize("name", ["aggregation", "synchronization"])
def test_aggregation_and_synchronization_may_be_none(name):
    v = Variable(1.0, **{name: None})
    assert getattr(v, name) is None


def test_initial_value_by_initializer_name():
    assert Variable("ones", (2,), "int8").numpy().tolist() == [1, 1]
    assert Variable("ones", ()).dtype == "float32"
    calls = []

    def initializer(shape, dtype=None):
        calls.append((shape, dtype))
        return ops.zeros(shape, dtype)

    Variable(initializer, [2, 3], "float16")
    Variable(initializer, [2])
    assert calls == [((2, 3), "float16"), ((2,), "float32")]
    assert Variable(1, dtype=float).dtype == "float32"
    assert Variable([1], [1], dtype=float).dtype == "float32"


def test_attributes_of_a_new_variable():
    v = Variable(A, trainable=0, autocast=0)
    assert (v.trainable, v.autocast, v.overwrite_with_gradient) == (False, False, False)
    v.constraint = v.constraint
    assert (v.spec.shape, v.spec.dtype) == ((2, 2), "float32")
    assert v.path == v.name and v.name.startswith("variable")


def test_a_cast_value_keeps_its_tensor():
    v, number = Variable(A), Variable(3)
    assert v.value.dtype == "float32"
    state.autocast = "float16"
    try:
        assert (v.value.dtype, v.read().dtype) == ("float16", "float32")
        assert v.numpy().dtype == "float16"
        assert (number.dtype, number.value.dtype) == ("int32", "int32")
        assert v.spec.dtype == "float32"
    finally:
        state.autocast = None


def test_arrays_of_numpy():
    v = Variable(A)
    assert np.asarray(v).dtype == np.float32
    assert np.array(v, dtype="float64").dtype == np.float64
    array = np.asarray(v)
    v.assign(A * 0)
    assert_close(array, A)
    assert [5, 6, 7][Variable(1)] == 6
    assert bool(Variable(1.0)) and not bool(Variable(0.0))


@pytest.mark.parametrize("trainable", [True, False])
def test_notebook_representation(trainable):
    text = Variable(A, name="mine", trainable=trainable)._repr_html_()
    assert "Variable" in text and "mine" in text
    assert ("not trainable" in text) == (not trainable)


# --- buffers --------------------------------------------------------------------------


def test_private_buffer_is_created_once():
    v = Variable(A)
    returned = v.numpy()
    private = v.exclusive_buffer()
    assert private is v.exclusive_buffer()
    private[...] = 7.0
    assert_close(v, A * 0 + 7)
    assert_close(returned, A)
    read = v.read()  # now another object references it
    assert v.exclusive_buffer() is not private
    assert np.shares_memory(read.numpy(), private)


def test_spare_buffer_is_the_previous_one():
    v = Variable(A)
    spare = v.spare_buffer()
    assert spare is v.spare_buffer()
    assert (spare.shape, spare.dtype) == ((2, 2), np.float32)
    before = v.exclusive_buffer()
    v.commit(spare)
    assert v.exclusive_buffer() is spare
    assert v.spare_buffer() is before
    v.read()
    v.commit(before)
    assert v.spare_buffer() is not spare  # another object may reference it


def test_recommitted_buffer_is_not_spare():
    v = Variable(A)
    private = v.exclusive_buffer()
    v.commit(private)
    assert v.exclusive_buffer() is private and v.spare_buffer() is not private


def test_numpy_array_is_copied_only_on_request():
    v = Variable(A)
    shared = v.value.numpy()
    assert np.shares_memory(v.__array__(copy=False), shared)
    for option in (None, True):
        assert not np.shares_memory(v.__array__(copy=option), shared)
    assert not np.shares_memory(v.numpy(), shared)
    with pytest.raises(ValueError, match="copy"):
        v.__array__("float64", copy=False)


def test_value_moves_to_the_backend_that_uses_it(monkeypatch):
    class OtherMemory:
        def __init__(self):
            self.copies = []

        def owns(self, array):
            return any(array is other for other in self.copies)

        def copy_array(self, array):
            self.copies.append(array.copy())
            return self.copies[-1]

    accelerator = OtherMemory()
    monkeypatch.setattr(
        variable, "backend", lambda: SimpleNamespace(memory=accelerator)
    )
    v = Variable(A)
    v._spare = np.zeros(3)
    v.settle()
    v.settle()
    assert len(accelerator.copies) == 1
    assert (
        v.exclusive_buffer() is accelerator.copies[0]
    )  # no other object references it
    assert v._spare is None
    assert_close(v, A)


class OnDevice(np.ndarray):
    """An array in the memory of a simulated accelerator."""


class Accelerator:
    """The memory of the simulated accelerator."""

    def owns(self, array):
        return isinstance(array, OnDevice)

    def copy_array(self, array):
        return array.copy().view(OnDevice)

    def as_row_major(self, array):
        return array.copy("C")

    def overwrite(self, array, value):
        array[...] = value

    def to_numpy(self, array):
        self.last = np.array(array)
        return self.last


@pytest.fixture
def make_on_device():
    """Create a Variable whose buffer has no other reference, on an accelerator."""
    device = Accelerator()
    memory.device_memories.append(device)

    def make(value):
        v = Variable(value)
        v._tensor = Tensor(device.copy_array(v._tensor._array), v._tensor.spec)
        v._shared = False
        return v

    make.device = device
    yield make
    memory.device_memories.remove(device)


@pytest.mark.parametrize(
    "count, is_copied", [(1, True), (1 << 14, True), (16385, False)]
)
def test_small_values_are_copied_on_an_accelerator(make_on_device, count, is_copied):
    """Check that a read leaves the address of a buffer, which a captured step uses."""
    v = make_on_device(np.ones(count, "float32"))
    buffer = v._tensor._array
    read = v.read()
    assert (read._array is buffer) != is_copied
    v.assign(np.full(count, 3.0))
    assert (v._tensor._array is buffer) == is_copied
    assert v.numpy()[0] == 3.0 and read.numpy()[0] == 1.0


def test_array_read_on_an_accelerator_keeps_the_buffer(make_on_device):
    v = make_on_device(A)
    buffer = v._tensor._array
    returned = v.numpy()
    assert returned is make_on_device.device.last  # copied once
    assert type(returned) is np.ndarray and returned.dtype == np.float32
    v.assign(A * 2)
    assert v._tensor._array is buffer
    assert_close(returned, A)
    state.autocast = "float16"
    try:
        assert v.numpy().dtype == np.float16
    finally:
        state.autocast = None


def test_tape_uses_tensor_identity(make_on_device):
    v = make_on_device(A)
    with toolkit.GradientTape() as tape:
        assert v.read() is v.read()
        y = v.read()
    assert tape.gradient(y, v) is not None


def test_a_buffer_that_is_shared_is_not_overwritten(make_on_device):
    v = make_on_device(A)
    buffer, v._shared = v._tensor._array, True
    v.assign(A * 2)
    assert v._tensor._array is not buffer
    assert_close(np.asarray(buffer), A)


def test_views_on_an_accelerator_are_copied_there(make_on_device):
    device = np.arange(6, dtype="float32").reshape(2, 3).view(OnDevice)
    tensor = Tensor(device.T, Variable(np.zeros((3, 2), "float32")).spec)
    array = variable._to_contiguous(tensor)._array
    assert isinstance(array, OnDevice) and array.flags.c_contiguous


def test_views_do_not_share_their_value_with_the_base():
    array = np.arange(6, dtype="float32").reshape(2, 3)
    tensor = Tensor(array.T, Variable(np.zeros((3, 2), "float32")).spec)
    assert variable._to_contiguous(tensor)._array.flags.c_contiguous
    tensor = Tensor(array, Variable(array).spec)
    assert variable._to_contiguous(tensor)._array is array


# --- locks ----------------------------------------------------------------------------


def test_locks_are_acquired_in_order_and_released():
    variables = [Variable(float(i)) for i in range(3)]
    forwards, backwards = Locks(variables), Locks(variables[::-1])
    assert forwards.locks == backwards.locks
    with forwards:
        assert not any(map(is_free, variables))
    assert all(map(is_free, variables))


def test_interrupt_releases_acquired_locks():
    def interrupted():
        raise KeyboardInterrupt

    variables = [Variable(float(i)) for i in range(2)]
    locks = Locks(variables)
    locks._take.append(interrupted)
    with pytest.raises(KeyboardInterrupt):
        locks.__enter__()
    assert all(map(is_free, variables))


def test_copies_have_separate_locks():
    v = Variable(A)
    v.spare_buffer()
    for duplicate in (copy.copy(v), copy.deepcopy(v)):
        assert duplicate.lock is not v.lock
        assert duplicate.spare_buffer() is not v.spare_buffer()
        with v.lock:
            assert is_free(duplicate)
    memo = {}
    assert copy.deepcopy([v, v], memo)[0] is memo[id(v)]
