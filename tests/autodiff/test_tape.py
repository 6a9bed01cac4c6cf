"""Tests of GradientTape: recording, higher orders, Jacobians, custom gradients."""

import numpy as np
import pytest

import toolkit
from tests.compiler.graphs import trace_of
from tests.helpers import assert_close, check_grads
from toolkit import ops
from toolkit.autodiff.custom_gradient import custom_gradient
from toolkit.autodiff.tape import GradientTape, pull_back
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, GradientError
from toolkit.ir import PRIMITIVES, Node


def tensor(x):
    return ops.convert_to_tensor(x, "float32")


# --- watched values -------------------------------------------------------------------


def test_variables_are_watched_when_read():
    v, frozen = Variable(3.0), Variable(2.0, trainable=False)
    with GradientTape() as tape:
        y = v * v * frozen
    assert tape.watched_variables() == (v,)
    assert [g if g is None else float(g) for g in tape.gradient(y, [v, frozen])] == [
        12.0,
        None,
    ]


def test_watch_accessed_variables_can_be_disabled():
    x, frozen = tensor(3.0), Variable(2.0, trainable=False)
    with GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([x, {"v": frozen}])
        y = x * frozen
    assert list(map(float, tape.gradient(y, (x, frozen)))) == [2.0, 3.0]


def test_tensors_are_watched_only_on_request():
    x = tensor(3.0)
    with GradientTape() as tape:
        y = x * x
    assert tape.gradient(y, x) is None


@pytest.mark.parametrize("value", [1.0, "x", np.ones(2)])
def test_only_tensors_can_be_watched(value):
    with pytest.raises(GradientError, match="expected a tensor"):
        GradientTape().watch(value)


def test_integers_cannot_be_watched():
    with pytest.raises(GradientError, match="int32"):
        GradientTape().watch(ops.convert_to_tensor(1))


def test_one_variable_read_several_times():
    v = Variable(2.0)
    with GradientTape() as tape:
        y = v * 3.0
        v.assign(5.0)
        y = y + v * v
    assert float(tape.gradient(y, v)) == 13.0


def test_watched_variable_counts_as_read():
    v = Variable(2.0)
    with GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(v)
    assert float(tape.gradient(v, v)) == 1.0


def test_variable_with_watched_value_counts_as_read():
    v = Variable(3.0)
    value = v.value
    with GradientTape() as tape:
        tape.watch(value)
        y = v * v
    assert float(tape.gradient(y, v)) == 6.0


def test_watched_tensors_stay_alive():
    with GradientTape() as tape:
        for _ in range(10):
            tape.watch(tensor(1.0))
            assert not tape.watches([tensor(2.0)])


# --- targets and sources --------------------------------------------------------------


def test_gradients_do_not_flow_through_assignments():
    v = toolkit.Variable(2.0)

    def tripled_and_used(x):
        y = v * x
        v.assign(v * 3.0)
        return y * v

    def gradient(function):
        v.assign(2.0)
        with toolkit.GradientTape() as tape:
            y = function(ops.convert_to_tensor(5.0))
        return tape.gradient(y, v)

    traced = toolkit.function(tripled_and_used)
    traced_gradient = toolkit.function(lambda: gradient(tripled_and_used))
    assert float(gradient(tripled_and_used)) == 40.0  # both reads, as in TensorFlow
    assert float(gradient(traced)) == 40.0
    assert float(traced_gradient()) == 40.0


def test_gradients_do_not_flow_through_assignments_of_views():
    v, x = toolkit.Variable(np.ones((2, 3), "float32")), ops.ones((3, 2))
    with toolkit.GradientTape() as tape:
        tape.watch(x)
        v.assign(ops.transpose(x))
        y = v * 3.0
    gradients = tape.gradient(y, [x, v])
    assert gradients[0] is None
    assert gradients[1].tolist() == [[3.0, 3.0, 3.0]] * 2


def test_sources_may_be_any_structure():
    a, b = Variable(2.0), Variable([1.0, 3.0])
    with GradientTape() as tape:
        y = a * b
    gradients = tape.gradient(y, {"a": a, "rest": [b, (a,)]})
    assert float(gradients["a"]) == float(gradients["rest"][1][0]) == 4.0
    assert_close(gradients["rest"][0], np.full(2, 2.0, np.float32))


def test_several_targets_are_summed():
    x = Variable(2.0)
    with GradientTape() as tape:
        targets = [x * 3.0, {"b": x * x}]
    assert float(tape.gradient(targets, x)) == 7.0


def test_output_gradients_scale_the_target():
    x = Variable([1.0, 2.0])
    with GradientTape() as tape:
        y = x * x
    assert tape.gradient(y, x, output_gradients=[10.0, 1.0]).tolist() == [20.0, 4.0]
    with GradientTape(persistent=True) as tape:
        y, z = x * x, x * 3.0
    weighted = tape.gradient([y, z], x, [tensor([10.0, 1.0]), None])
    assert weighted.tolist() == [23.0, 7.0]
    with pytest.raises(GradientError, match="expected 2 output gradients"):
        tape.gradient([y, z], x, [1.0])


def test_gradient_of_an_intermediate_value_and_of_itself():
    x = Variable(3.0)
    with GradientTape(persistent=True) as tape:
        y = x * x
        z = y * y
    assert float(tape.gradient(z, y)) == 18.0
    assert float(tape.gradient(z, z)) == 1.0
    assert float(tape.gradient(z, x)) == 108.0


def test_unconnected_sources():
    x, y = Variable([1.0, 2.0]), Variable([3.0])
    with GradientTape(persistent=True) as tape:
        z = ops.sum(x)
    assert tape.gradient(z, y) is None
    assert tape.gradient(z, y, unconnected_gradients="zero").tolist() == [0.0]
    with pytest.raises(ArgumentError, match="'none', 'zero'"):
        tape.gradient(z, y, unconnected_gradients="ones")


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: ops.concatenate([x, w]),  # one rule for all inputs
        lambda x, w: ops.slice_update(x, (1, 0), w[:1]),
        lambda x, w: ops.matmul(x, w),  # one rule for each input
        lambda x, w: ops.linalg.solve(x, w),
    ],
)
@pytest.mark.parametrize("watched", [0, 1])
def test_unwatched_tensors_have_no_gradient(function, watched):
    pair = [tensor([[2.0, 1.0], [0.5, 3.0]]), tensor([[1.0, 2.0], [3.0, 4.0]])]
    with GradientTape() as tape:
        tape.watch(pair[watched])
        y = function(*pair)
    gradients = tape.gradient(y, pair)
    assert [g is not None for g in gradients] == [watched == 0, watched == 1]


def test_integers_have_no_gradient():
    x = Variable(2.6)
    with GradientTape() as tape:
        y = ops.cast(ops.cast(x, "int32"), "float32") * 2.0
    assert tape.gradient(y, x) is None


@pytest.mark.parametrize("target, source", [("int32", "float32"), ("float32", "int64")])
def test_integer_gradients_warn(target, source):
    x, y = ops.ones(2, source), ops.ones(2, target)
    integer = target if target.startswith("int") else source
    with pytest.warns(UserWarning, match=f"floating.*received a .* of {integer}"):
        assert GradientTape().gradient(y, x) is None


def test_integers_with_floats_or_no_sources_do_not_warn():
    x = Variable(2.0)
    with GradientTape(persistent=True) as tape:
        y = x * x
    integer = ops.convert_to_tensor(1)
    assert list(map(float, tape.gradient([y, integer], [x]))) == [4.0]
    assert tape.gradient(y, [x, integer])[1] is None
    assert tape.gradient(y, []) == []


def test_integers_with_output_gradients_do_not_warn():
    x, y = ops.ones(2), ops.ones(2, "int32")
    assert GradientTape().gradient(y, x, output_gradients=ops.ones(2)) is None


@pytest.mark.parametrize("sources", [1.0, "x", np.ones(2), [None]])
def test_wrong_sources_are_refused(sources):
    x = Variable(1.0)
    with GradientTape() as tape:
        y = x * x
    with pytest.raises(GradientError, match="received"):
        tape.gradient(y, sources)


def test_broadcast_inputs_have_gradients_of_their_shape():
    row, column, number = (Variable(np.ones(s, np.float32)) for s in ((3,), (2, 1), ()))
    with GradientTape() as tape:
        y = row * column + number
    shapes = [g.shape for g in tape.gradient(y, [row, column, number])]
    assert shapes == [(3,), (2, 1), ()]


# --- the lifetime of a tape -----------------------------------------------------------


def test_a_tape_is_used_once():
    x = Variable(3.0)
    with GradientTape() as tape:
        y = x * x
    tape.gradient(y, x)
    with pytest.raises(GradientError, match="persistent=True"):
        tape.gradient(y, x)


def test_persistent_tape_is_used_repeatedly():
    x = Variable(3.0)
    with GradientTape(persistent=True) as tape:
        y = x * x
        z = y * x
    assert (float(tape.gradient(y, x)), float(tape.gradient(z, x))) == (6.0, 27.0)


def test_a_tape_cannot_be_entered_twice_at_once():
    with GradientTape() as tape:
        with pytest.raises(GradientError, match="already records"):
            tape.__enter__()


def test_recording_resumes_on_reentry():
    x = Variable(3.0)
    tape = GradientTape()
    with tape:
        y = x * x
    with tape:
        z = y * x
    assert float(tape.gradient(z, x)) == 27.0


def test_stop_recording():
    x = Variable(3.0)
    with GradientTape() as tape:
        y = x * x
        with tape.stop_recording():
            hidden = x * x
        z = y * hidden
    assert float(tape.gradient(z, x)) == 54.0


def test_stop_gradient():
    x = Variable(3.0)
    with GradientTape() as tape:
        y = x * ops.stop_gradient(x * x)
    assert float(tape.gradient(y, x)) == 9.0


def test_reset_forgets():
    x = Variable(3.0)
    with GradientTape(persistent=True) as tape:
        y = x * x
        tape.reset()
        assert tape.watched_variables() == ()
        z = x * 5.0
    assert tape.gradient(y, x) is None
    assert float(tape.gradient(z, x)) == 5.0


def test_a_tape_is_used_again_after_reset():
    x = Variable(3.0)
    tape = GradientTape()
    for _ in range(2):
        with tape:
            y = x * x
        assert float(tape.gradient(y, x)) == 6.0
        tape.reset()


def test_error_in_the_context_ends_the_recording():
    tape = GradientTape()
    with pytest.raises(ZeroDivisionError):
        with tape:
            raise ZeroDivisionError
    x = Variable(1.0)
    _ = x * x
    assert tape.watched_variables() == ()


# --- higher orders --------------------------------------------------------------------


def test_second_and_third_derivative():
    x = Variable(2.0)
    with GradientTape() as outermost:
        with GradientTape() as middle:
            with GradientTape() as innermost:
                y = x * x * x * x
            dy = innermost.gradient(y, x)
        d2y = middle.gradient(dy, x)
    d3y = outermost.gradient(d2y, x)
    assert list(map(float, (dy, d2y, d3y))) == [32.0, 48.0, 48.0]


def test_gradient_nodes_have_one_gradient_scope():
    def second_gradient(x):
        with GradientTape() as outer:
            outer.watch(x)
            with GradientTape() as inner:
                inner.watch(x)
                with toolkit.name_scope("layer"):
                    y = ops.sum(ops.tanh(x))
            g = inner.gradient(y, x)
        return outer.gradient(g, x)

    graph = trace_of(second_gradient, (3,))
    origins = {getattr(x, "_origin", ()) for node in graph.nodes for x in node.outputs}
    assert ("layer", "gradient") in origins
    assert not [names for names in origins if names.count("gradient") > 1]


def test_a_gradient_taken_inside_the_tape_is_recorded():
    x = Variable(3.0)
    with GradientTape(persistent=True) as tape:
        y = x * x * x
        dy = tape.gradient(y, x)
    assert float(tape.gradient(dy, x)) == 18.0


def test_composite_differentiates_only_requested_inputs():
    x, g = tensor([0.5, -1.0]), tensor([1.0, 2.0])
    op = PRIMITIVES["gelu_grad"]  # without a rule: its body is differentiated
    assert op.vjp is None
    node = Node(op, (g, x), {}, (op.body(g, x),))
    requests = [(True, False), (False, True), (True, True)]
    for flags in requests:
        gradients = pull_back(node, [ops.ones(2)], list(flags))
        assert tuple(d is not None for d in gradients) == flags


def test_gradient_of_a_gradient_penalty():
    w = np.array([0.5, -1.2, 0.7])

    def penalty(x):
        with GradientTape() as tape:
            tape.watch(x)
            y = ops.sum(ops.tanh(x * w) * x)
        g = tape.gradient(y, x)
        return ops.sqrt(ops.sum(g * g))

    check_grads(penalty, [np.array([0.3, 0.9, -0.4])], order=2)


# --- Jacobians ------------------------------------------------------------------------


def test_jacobian():
    w = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)
    x, b = Variable([1.0, -1.0, 0.5]), Variable([0.0, 0.0])
    with GradientTape() as tape:
        y = ops.matmul(tensor(w), x) + b * b
    jacobians = tape.jacobian(y, {"x": x, "b": b})
    assert_close(jacobians["x"], w)
    assert_close(jacobians["b"], np.zeros((2, 2), np.float32))
    with pytest.raises(GradientError):
        tape.jacobian(y, x)


@pytest.mark.parametrize(
    "target", [Variable([1.0, 2.0]), [tensor([1.0])], 1.0, tensor(np.zeros((0, 2)))]
)
def test_jacobian_needs_one_nonempty_tensor(target):
    with pytest.raises(GradientError, match="jacobian: expected a nonempty tensor"):
        GradientTape().jacobian(target, Variable(1.0))


def test_jacobian_of_one_element_and_of_unconnected_sources():
    x, unconnected = tensor([1.0, 2.0]), tensor([3.0])
    with GradientTape() as tape:
        tape.watch([x, unconnected])
        y = ops.sum(x * x, keepdims=True)
    jacobians = tape.jacobian(y, {"x": x, "other": unconnected})
    assert jacobians["other"] is None
    assert_close(jacobians["x"], [[2.0, 4.0]])


def test_persistent_tape_continues_after_a_jacobian():
    x = ops.convert_to_tensor([1.0, 2.0])
    with toolkit.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * x
        jacobian = tape.jacobian(y, x)
        z = 3.0 * y
    assert jacobian.tolist() == [[2.0, 0.0], [0.0, 4.0]]
    assert tape.gradient(z, x).tolist() == [6.0, 12.0]


def test_jacobian_of_matrices_and_hessian():
    x = Variable(np.array([[1.0, 2.0]], np.float32))
    with GradientTape(persistent=True) as outer:
        with GradientTape() as inner:
            y = ops.sum(x * x * x)
        g = inner.gradient(y, x)
    assert_close(
        outer.jacobian(g, x), np.array([[[[6.0, 0]], [[0, 12.0]]]], np.float32)
    )
    assert outer.jacobian(g, Variable(1.0)) is None


# --- custom gradients -----------------------------------------------------------------


def test_custom_gradient():
    @custom_gradient
    def clipped(x):
        return x, lambda g: ops.clip(g, -1.0, 1.0)

    x = Variable(2.0)
    with GradientTape() as tape:
        y = 5.0 * clipped(x)
    assert float(tape.gradient(y, x)) == 1.0


def test_custom_gradient_of_several_inputs_and_outputs():
    @custom_gradient
    def swapped(x, y, scale):
        def grad(gx, gy):
            return gy * 10.0, gx * 100.0

        return (y * scale, x), grad

    x, y = Variable(2.0), Variable(3.0)
    with GradientTape() as tape:
        a, b = swapped(x, y, 2.0)
        z = a + 7.0 * b
    assert (float(a), float(b)) == (6.0, 2.0)
    assert list(map(float, tape.gradient(z, [x, y]))) == [70.0, 100.0]


def test_custom_gradient_of_an_unused_output_is_zero():
    @custom_gradient
    def with_double(x):
        return (x, x * 2.0), lambda ga, gb: ga + gb

    x = Variable(1.0)
    with GradientTape() as tape:
        y = with_double(x)[0] * 3.0
    assert float(tape.gradient(y, x)) == 3.0


@pytest.mark.parametrize("depth", [1, 2])
def test_custom_gradient_in_a_differentiated_function(depth):
    @custom_gradient
    def swapped(x, y, scale):
        def grad(gx, gy):
            return gy * x, gx * 100.0

        return (y * scale, x), grad

    def call(x, y):
        a, b = swapped(x * 1.0, y, 2.0)
        return a + 7.0 * b

    for _ in range(depth):
        call = toolkit.function(call)
    x, y = Variable(2.0), Variable(3.0)
    with GradientTape() as outer:
        with GradientTape() as tape:
            z = call(x, y)
        gradients = tape.gradient(z, [x, y])
    assert float(z) == 20.0
    assert list(map(float, gradients)) == [14.0, 100.0]
    assert float(outer.gradient(gradients[0], x)) == 7.0


def test_custom_gradient_in_a_branch_and_in_a_loop():
    @custom_gradient
    def doubled(x):
        return x * 2.0, lambda g: g * 5.0

    def branch(x):
        return ops.cond(x > 0.0, lambda: doubled(x), lambda: x * 1.0)

    def loop(x):
        return ops.scan(lambda c, _: (doubled(c), c), x, ops.zeros((2,)))[0]

    for call, expected in ((branch, 5.0), (loop, 25.0)):
        for program in (call, toolkit.function(call)):
            x = Variable(1.0)
            with GradientTape() as tape:
                y = program(x)
            assert float(tape.gradient(y, x)) == expected


def test_custom_gradient_is_differentiated_again():
    @custom_gradient
    def log1p_exp(x):
        e = ops.exp(x)
        return ops.log(1.0 + e), lambda g: g * (1.0 - 1.0 / (1.0 + e))

    check_grads(log1p_exp, [np.array([0.5, -1.0, 2.0])], order=3)


def test_custom_gradient_inside_a_traced_function():
    @custom_gradient
    def doubled(x):
        return x * x, lambda g: g * 100.0

    v = Variable(3.0)

    @toolkit.function
    def f():
        with GradientTape() as tape:
            y = doubled(v)
        return tape.gradient(y, v)

    assert float(f()) == 100.0


def test_custom_gradient_with_too_many_results_is_refused():
    @custom_gradient
    def f(x):
        return x, lambda g: (g, g)

    x = Variable(1.0)
    with GradientTape() as tape:
        y = f(x)
    with pytest.raises(GradientError, match="1 tensor inputs.*2 values"):
        tape.gradient(y, x)


# --- conventions ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "function, values, expected",
    [
        (ops.max, [1.0, 3.0, 3.0], [0.0, 0.5, 0.5]),
        (ops.min, [1.0, 1.0, 3.0], [0.5, 0.5, 0.0]),
        (lambda x: ops.maximum(x, 1.0), [1.0, 0.0, 2.0], [0.5, 0.0, 1.0]),
        (lambda x: ops.minimum(x, 1.0), [1.0, 0.0, 2.0], [0.5, 1.0, 0.0]),
        (ops.abs, [0.0, -1.0, 2.0], [0.0, -1.0, 1.0]),
        (lambda x: x**0.0, [0.0, 1.0], [0.0, 0.0]),
        (lambda x: x**2.0, [0.0, 1.0], [0.0, 2.0]),
        (lambda x: x[[0, 0, 1]], [1.0, 2.0, 3.0], [2.0, 1.0, 0.0]),
        (lambda x: ops.where(x > 0, ops.sqrt(ops.abs(x)), 0.0), [4.0, -1.0], [0.25, 0]),
    ],
)
def test_gradients_at_special_points(function, values, expected):
    x = Variable(values)
    with GradientTape() as tape:
        y = function(x)
    assert_close(tape.gradient(y, x), np.array(expected, np.float32))


def test_traced_functions_have_the_same_gradients():
    x = Variable(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4))

    def gradient():
        with GradientTape() as tape:
            y = ops.sum(ops.tanh(x @ ops.transpose(x)) * 0.5)
        return tape.gradient(y, x)

    assert_close(toolkit.function(gradient)(), gradient())


def derivatives(function, x):
    x = ops.array(x)
    with toolkit.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x).numpy()


def test_running_products_avoid_overflow_and_zeros():
    """Check that no product outside the result overflows or is lost by a zero."""
    x = np.array([0.1] * 25 + [10] * 50, "float32")
    results = derivatives(lambda x: ops.sum(ops.cumprod(x)), x)
    y = np.cumprod(x.astype("float64"))
    np.testing.assert_allclose(results, np.cumsum(y[::-1])[::-1] / x, 1e-4)
    x = np.array([0, 1, 1e30, 1e30, 1e30], "float32")
    results = derivatives(lambda x: ops.sum(ops.cumprod(x)), x)
    np.testing.assert_array_equal(results, [np.inf, 0, 0, 0, 0])


def test_second_derivatives_of_running_products():
    for x in ([2.0, 3.0, 0.5, -1.0], [2.0, 0.0, 3.0, 0.0, 4.0], [0.0, 5.0, 2.0]):
        with toolkit.GradientTape() as outer:
            values = ops.array(x, "float64")
            outer.watch(values)
            with toolkit.GradientTape() as inner:
                inner.watch(values)
                y = ops.cumprod(values)[-1]
            gradient = inner.gradient(y, values)
        hessian = outer.jacobian(gradient, values).numpy()
        for i in range(len(x)):
            for j in range(len(x)):
                factors = np.delete(np.array(x), [i, j])
                expected = 0 if i == j else np.prod(factors)
                np.testing.assert_allclose(hessian[i, j], expected, 1e-12, 1e-12)


def test_tape_accepts_variable_wrappers():
    class Wrapper:
        def __init__(self, variable):
            self.variable = variable

        @property
        def value(self):
            return self.variable.value

        def __toolkit_variable__(self):
            return self.variable

    x = Wrapper(toolkit.Variable([1.0, 2.0]))
    with toolkit.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(x)
        y = ops.stack([x, x])
    assert tape.gradient(y, {"x": x})["x"].numpy().tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("shapes", "products"),
    [
        (((), (7,), (7,)), 1),  # a sum over rows stays a product
        (((1, 2), (1, 3), (3, 2)), 2),
        (((4, 1), (4, 3), (3, 1)), 1),
        (((4, 2), (4, 3), (3, 2)), 2),
    ],
)
def test_gradient_of_a_product_multiplies_if_sums_have_one_term(shapes, products):
    """An elementwise product is faster than a sum of one term, and it fuses."""

    def gradient(g, x, w):
        with GradientTape() as tape:
            tape.watch([x, w])
            y = ops.matmul(x, w)
        return tape.gradient(y, [x, w], output_gradients=g)

    names = [node.op.name for node in trace_of(gradient, *shapes).nodes]
    assert names.count("matmul") == 1 + products  # one is the product itself
    random = np.random.default_rng(0)
    check_grads(ops.matmul, [random.standard_normal(shape) for shape in shapes[1:]])
