"""Tests of Variables that change while a tape records: the two reads are two values.

The expected gradients are TensorFlow's. The gradient of a Variable is the sum over all
its reads. No gradient flows through a Variable to the operands of its assigned value.
"""

import numpy as np
import pytest

import toolkit
from toolkit import ops
from toolkit.errors import GradientError


def scalar(value=2.0, **options):
    return toolkit.Variable(value, **options)


def assigned(w):
    w.assign(w * 3.0)
    return w * w


def read_before_and_after(w):
    y = w * w
    w.assign(w * 3.0)
    return y + w * w


def added_to(w):
    w.assign_add(w * 2.0)
    return w * w


def subtracted_from(w):
    w.assign_sub(w * 3.0)
    return w * w * w


def assigned_twice(w):
    w.assign(w * 3.0)
    y = w * w
    w.assign(w * w)
    return y + 5.0 * w


def assigned_a_number(w):
    w.assign(5.0)
    return w * w


def in_a_branch(w):
    def yes():
        w.assign(w * 3.0)
        return w * w

    return ops.cond(ops.abs(w) > 0.0, yes, lambda: w * 1.0) + w * 10.0


def in_a_while_loop(w):
    def step(n, total):
        w.assign(w * 3.0)
        return n + 1, total + w * w

    return ops.while_loop(
        lambda n, total: n < 2, step, (0, ops.zeros(())), maximum_iterations=2
    )[1]


def in_a_scan(w):
    def step(total, x):
        y = w * x
        w.assign(w * 3.0)
        return total + w * w + y, y

    return ops.scan(step, ops.zeros(()), ops.array([1.0, 2.0]))[0]


def in_a_custom_gradient(w):
    @ops.custom_gradient
    def doubled(x):
        return 2.0 * x, lambda g: 7.0 * g

    w.assign(doubled(w.value) * 3.0)
    return doubled(w.value)


def in_a_function(w):
    return toolkit.function(lambda: assigned(w))() + w * 10.0


def computed_again(w):
    return ops.abs(toolkit.remat(lambda: read_before_and_after(w))())


CASES = {  # the gradient at 2, and the value after the call
    assigned: (12.0, 6.0),
    read_before_and_after: (4.0 + 12.0, 6.0),
    added_to: (12.0, 6.0),
    subtracted_from: (48.0, -4.0),
    assigned_twice: (12.0 + 5.0, 36.0),
    assigned_a_number: (10.0, 5.0),
    in_a_branch: (12.0 + 10.0, 6.0),
    in_a_while_loop: (12.0 + 36.0, 18.0),
    in_a_scan: (1.0 + 12.0 + 2.0 + 36.0, 18.0),
    in_a_custom_gradient: (7.0, 12.0),
    in_a_function: (12.0 + 10.0, 6.0),
    computed_again: (4.0 + 12.0, 6.0),
}


def with_tape(program, w):
    with toolkit.GradientTape() as tape:
        y = program(w)
    return y, tape.gradient(y, w)


def eagerly(program, w):
    return with_tape(program, w)


def traced(program, w):
    return toolkit.function(lambda: with_tape(program, w))()


def around_a_function(program, w):
    call = toolkit.function(lambda: program(w))
    return with_tape(lambda w: call(), w)


def traced_twice(program, w):
    inner = toolkit.function(lambda: program(w))
    return toolkit.function(lambda: with_tape(lambda w: inner(), w))()


WAYS = (eagerly, traced, around_a_function, traced_twice)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("program", CASES)
def test_gradient_is_the_sum_over_reads(program, way):
    gradient, after = CASES[program]
    expected_w = scalar()
    expected = float(program(expected_w))
    w = scalar()
    y, actual = way(program, w)
    assert float(y) == expected
    assert float(actual) == gradient
    assert float(w) == float(expected_w) == after


@pytest.mark.parametrize("way", WAYS)
def test_other_variables_have_no_gradient(way):
    w, u = scalar(2.0), scalar(3.0)

    def program():
        w.assign(u * u)
        return w * u

    def take_gradient_eagerly():
        with toolkit.GradientTape() as tape:
            y = program()
        return tape.gradient(y, [w, u])

    def trace_with_gradient():
        call = toolkit.function(program)
        with toolkit.GradientTape() as tape:
            y = call()
        return tape.gradient(y, [w, u])

    gradients = {
        eagerly: take_gradient_eagerly,
        traced: toolkit.function(take_gradient_eagerly),
        around_a_function: trace_with_gradient,
        traced_twice: toolkit.function(trace_with_gradient),
    }[way]()
    assert [float(g) for g in gradients] == [3.0, 9.0]


def test_assignment_from_a_variable_is_not_a_read():
    w, u = scalar(2.0), scalar(3.0)
    with toolkit.GradientTape(persistent=True) as tape:
        w.assign(u)
        y = w * w * u
    assert float(tape.gradient(y, w)) == 18.0
    assert float(tape.gradient(y, u)) == 9.0


def test_untrainable_variables_have_no_gradient():
    w, moving = scalar(2.0), scalar(1.0, trainable=False)

    def program():
        moving.assign(0.5 * moving + w)
        return moving * w

    for call in (program, toolkit.function(program)):
        moving.assign(1.0)
        with toolkit.GradientTape() as tape:
            y = call()
        assert float(tape.gradient(y, w)) == 2.5


def test_result_of_assign_has_a_gradient():
    w = scalar()
    with toolkit.GradientTape() as tape:
        y = w.assign(w * 3.0) ** 2
    assert float(tape.gradient(y, w)) == 36.0


def test_stateless_scope_returns_its_values():
    w, x = scalar(), ops.array(4.0)
    with toolkit.GradientTape() as tape, toolkit.StatelessScope([(w, x)]):
        tape.watch(x)
        y = w * w
    assert float(tape.gradient(y, x)) == 8.0


def test_second_derivatives():
    def slope(w):
        with toolkit.GradientTape() as outer:
            with toolkit.GradientTape() as tape:
                w.assign(w * 3.0)
                y = w * w * w
            g = tape.gradient(y, w)
        return g, outer.gradient(g, w)

    for call in (slope, toolkit.function(slope)):
        first, second = call(scalar())
        assert (float(first), float(second)) == (108.0, 36.0)


def test_second_read_does_not_change_the_program():
    """Check that the node that separates reads is removed before planning."""
    w = toolkit.Variable(np.ones((4, 4), "float32"))

    @toolkit.function
    def two_reads(x):
        w.assign(w - 0.1 * x)
        w.assign(ops.maximum(w, 0.0))
        return ops.sum(w)

    @toolkit.function
    def one_read(x):
        value = ops.maximum(w - 0.1 * x, 0.0)
        w.assign(value)
        return ops.sum(value)

    x = ops.ones((4, 4))
    programs = [call.get_concrete_function(x).program for call in (two_reads, one_read)]
    nodes = [[node.op.name for node in p.graph.nodes] for p in programs]
    assert nodes[0] == nodes[1] and "reread" not in nodes[0]
    assert len({p.plan.live_peak for p in programs}) == 1


def test_training_with_spectral_normalization():
    """Check that the loss depends on the normalized kernel, and that it is updated."""
    layer = toolkit.layers.SpectralNormalization(
        toolkit.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    )
    x = np.array([[1.0, 2.0]], "float32")
    layer.build(x.shape)
    for call in (layer, toolkit.function(lambda x, training: layer(x, training=True))):
        layer.kernel.assign([[1.0], [1.0]])
        with toolkit.GradientTape() as tape:
            y = ops.sum(call(x, training=True) ** 2)
        gradient = tape.gradient(y, layer.kernel).numpy()
        kernel = layer.kernel.numpy()
        expected = 2 * x.T @ (x @ kernel)
        np.testing.assert_allclose(gradient, expected, 1e-5)


def test_assigned_integer_variable_has_no_gradient():
    count = toolkit.Variable(1, dtype="int32")
    with pytest.raises(GradientError), toolkit.GradientTape() as tape:
        tape.watch(count.assign_add(1))
