"""Tests of AutoGraph: Python's control flow over tensors has the results of Python."""

import traceback

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf
from toolkit.errors import DTypeError, ShapeError, TraceError


def if_else(x):
    if x > 0:
        y = x * 2
    else:
        y = -x
    return y


def if_alone(x):
    y = x + 1
    if x > 0:
        y = y * 2
    return y


def elif_chain(x):
    if x < -1:
        kind = 0
    elif x < 1:
        kind = 1
    elif x < 2:
        kind = 2
    else:
        kind = 3
    return kind


def nested(x):
    y = 0.0
    if x > 0:
        if x > 1:
            y = x
        else:
            y = x * 10
        y += 1
    return y


def early_return(x):
    if x > 1:
        return x * 2
    y = x + 1
    if y < -3:
        return y
    return -y


def partial_return(x):
    if x > -5:
        if x > 1:
            return x, 1
        x = x + 100
    return x, 2


def return_in_loop(x):
    for i in range(5):
        x = x * 2
        if x > 10:
            return x, i
    return x, -1


def return_in_while(x):
    while x < 20:
        x = abs(x) * 2 + 3
        if x > 7:
            return x
    return x * 0


def return_in_with(x):
    with tf.name_scope("part"):
        if x > 0:
            return x
        x = x - 1
    return x


def while_true(x):
    count = 0
    while True:
        x = x * 2 + 1
        count += 1
        if x > 30 or count > 8:
            break
    return x, count


def break_and_continue(x):
    total, i = 0.0, 0
    while i < x + 10:
        i += 1
        if i % 3 == 0:
            continue
        if total > 20:
            break
        total += float(i)
    return total, i


def loop_else(x):
    answer = -1
    for i in range(6):
        if i > x + 2:
            answer = i
            break
    else:
        answer = 100
    return answer


def inner_break(x):
    total = 0
    for i in range(4):
        for j in range(4):
            if i * j > x:
                break
            total += 1
        total += 10
    return total


def logic(x):
    a = x > 0 and x < 2
    b = x < -1 or x > 1
    return not a, b, not (a and b), (x > 0 or b) and not a


def chain(x):
    return -1 < x < 2, 0 if -2 < x <= 1.5 < 3 else 1


def expression(x):
    return x if x > 0 else (-x if x < -2 else x * 3)


def number_and_float(x):
    y = 0
    if x > 0:
        y = x
    return y


def structures(x):
    state = {"a": x, "b": (x, 1.0)}
    if x > 0:
        state = {"a": x + 1, "b": (x * 2, 2.0)}
    return state["a"], state["b"][0], state["b"][1]


def python_values_stay(x):
    name = "left"
    if x > 0:
        y, name = x, "left"
    else:
        y = -x
    return y, len(name)


def temporaries(x):
    i = 0
    while i < 3:
        square = x * x
        x = x + square / 10
        i += 1
    return x


def set_in_the_loop_only(x):
    i = 0
    while i < x + 9:
        last = x + float(i)
        i += 1
    return last


def built_ins(x):
    y = max(x, 1.0)
    z = min(x, -1.0, 2.0)
    return abs(x), int(x), float(y), z


def deletes(x):
    if x > 0:
        y = x
        del y
        x = x + 1
    return x


def helper(x):
    if x > 0:
        return x
    return x * 0.5


def calls(x):
    return helper(x) + (lambda y: y if y > 1 else y + 1)(x)


def inner_function(x):
    def inner(y):
        if y > x:
            return y
        return x

    return inner(x + 1) + inner(x - 1)


def comprehension(x):
    branches = [y if y > 0 else -y for y in (x, x + 1)]
    return branches[0] + branches[1]


def augmented_items(x):
    state = [x, x]
    for i in range(3):
        if state[0] > 0:
            state = [state[0] - 1, state[1] + i]
    return state[0], state[1]


def tries(x):
    try:
        if x > 0:
            return x
        y = x + 1
    finally:
        x = x * 2
    return y + x


def items(x):
    mapping = {}
    if x < 0:
        mapping["kind"] = 1.0
    elif x == 0:
        mapping["kind"] = 2.0
    else:
        mapping["kind"] = x * 3.0
    numbers = [x, [x]]
    if x > 1:
        numbers[1][-1] = x * 2
    return mapping["kind"], numbers[0], numbers[1][0]


class Box:
    """An object with attributes."""


def attributes(x):
    box = Box()
    box.inner, box.count = Box(), 0.0
    box.inner.value = x
    if x > 1:
        box.inner.value = x * 2
    while box.count < x:
        box.count += 1
        box.inner.value /= 2.0
    return box.count, box.inner.value


def items_of_loops(x):
    pair, index = {"a": 0.0, "b": 1.0}, "b"
    while pair["a"] < x:
        pair["a"], pair[index] = pair[index], pair["a"] + pair["b"]
    for i in range(3):
        if x > i:
            pair["a"] += x
    return pair["a"], pair["b"]


def a_new_object(x):
    mapping = {"a": x}
    if x > 0:
        mapping = {"a": x + 1}
        mapping["a"] = mapping["a"] * 2
    return mapping["a"]


PROGRAMS = [
    *(if_else, if_alone, elif_chain, nested, early_return, partial_return),
    *(return_in_loop, return_in_while, return_in_with, while_true, break_and_continue),
    *(loop_else, inner_break, logic, chain, expression, number_and_float, structures),
    *(python_values_stay, temporaries, set_in_the_loop_only, built_ins, deletes, calls),
    *(inner_function, comprehension, augmented_items, tries),
    *(items, attributes, items_of_loops, a_new_object),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_traced_program_matches_python(program):
    traced = tf.function(program)
    for number in (-7.0, -2.5, -1.0, 0.0, 0.5, 1.0, 1.5, 6.0):
        x = np.float32(number)
        expected = np.array(program(x), "float64")
        actual = np.array(tf.nest.map_structure(float, traced(tf.constant(x))))
        assert np.allclose(actual, expected, 1e-6), (number, actual, expected)
    assert traced.experimental_get_tracing_count() == 1


def test_a_range_of_a_tensor_is_one_graph():
    @tf.function
    def triangle(n):
        total = 0
        for i in tf.range(n):
            for j in range(1, i + 1):
                total += j
        return total

    assert [int(triangle(tf.constant(n))) for n in (0, 1, 5, 9)] == [0, 0, 20, 120]
    assert triangle.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("start, limit, delta", [(3, 11, 4), (9, 0, -2), (5, 5, 1)])
def test_ranges_may_be_negative(start, limit, delta):
    @tf.function
    def collect(limit):
        total = 0
        for i in range(start, limit, delta):
            total = total * 10 + i
        return total

    expected = 0
    for i in range(start, limit, delta):
        expected = expected * 10 + i
    assert int(collect(tf.constant(limit))) == expected


@pytest.mark.parametrize("rows", [5, 300])
def test_rows_of_a_tensor(rows):
    @tf.function
    def positive_until_large(xs):
        total = 0.0
        for x in xs:
            if x < 0:
                continue
            total += x
            if total > 40:
                break
        return total

    xs = np.random.default_rng(0).normal(0.3, 1, rows).astype("float32")
    expected = 0.0
    for x in xs:
        expected += max(x, 0)
        if expected > 40:
            break
    assert abs(float(positive_until_large(tf.constant(xs))) - expected) < 1e-4


def test_gradients_flow_through_branches_and_loops():
    def power(x, n):
        y = tf.ones_like(x)
        i = 0
        while i < n:
            tf.autograph.experimental.set_loop_options(maximum_iterations=8)
            y = y * x
            i += 1
        if y > 100:
            y = y / 10
        return y

    @tf.function
    def gradient(x, n):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = power(x, n)
        return tape.gradient(y, x)

    assert float(gradient(tf.constant(2.0), tf.constant(3))) == 12.0
    assert abs(float(gradient(tf.constant(5.0), tf.constant(3))) - 7.5) < 1e-5


def test_variables_are_assigned_in_branches_and_loops():
    v = tf.Variable(1.0)

    @tf.function
    def grow(n):
        for _ in tf.range(n):
            if v < 10:
                v.assign(v * 2)
            else:
                v.assign_add(1)
        return v

    assert float(grow(tf.constant(6))) == float(v) == 18.0


class Counter(tf.Module):
    def __init__(self):
        super().__init__()
        self.__count = tf.Variable(0)

    @tf.function
    def step(self, x):
        if x > 0:
            self.__count.assign_add(1)
        return self.__count.read_value()

    def __call__(self, x):
        return super().__repr__() if x is None else self.clipped(x)

    def clipped(self, x):
        if x > 1:
            x = tf.ones_like(x)
        return x


class Twice(Counter):
    def clipped(self, x):
        y = super().clipped(x)
        if y > 0:
            y = super().clipped(y) * 2
        return y


def test_methods_private_names_and_super():
    counter = Counter()
    assert [int(counter.step(tf.constant(x))) for x in (1, -1, 2)] == [1, 1, 2]
    twice = tf.function(Twice().__call__)
    assert [float(twice(tf.constant(x))) for x in (-1.0, 0.5, 3.0)] == [-1, 1, 2]
    model = Twice()
    assert float(tf.function(lambda x: model(x))(tf.constant(3.0))) == 2


def test_closures_are_shared():
    count = 0

    @tf.function
    def add(x):
        nonlocal count
        count += 1
        if x > 0:
            x = x + count
        return x

    assert float(add(tf.constant(1.0))) == 2 and count == 1


def test_a_long_range_is_a_loop_and_a_short_one_is_unrolled():
    steps = []

    def total(n):
        count = 0
        for i in tf.range(n):
            steps.append(i)
            count += i
        return count

    assert int(tf.function(lambda: total(1000))()) == 499500
    assert len(steps) < 5
    steps.clear()
    assert int(tf.function(lambda: total(10))()) == 45 and len(steps) == 10


def test_a_long_while_of_known_tensors_is_a_loop():
    steps = []

    @tf.function
    def count():
        i = tf.constant(0)
        while i < 5000:
            steps.append(i)
            i += 2
        return i

    assert int(count()) == 5000 and len(steps) < 200


def test_data_set_loops_run_eagerly():
    dataset = tf.data.Dataset.range(5).shuffle(5)

    @tf.function
    def total(dataset):
        total_value = tf.constant(0, tf.int64)
        for x in dataset:
            if x > 1:
                total_value += x
        return total_value

    with pytest.warns(UserWarning, match="loops over a data set"):
        assert int(total(dataset)) == 9
    assert int(total(dataset)) == 9


def test_data_set_functions_run_python():
    def scaled(x):
        if x > 2:
            return x * 10
        return x

    dataset = tf.data.Dataset.range(5).map(scaled)
    assert [int(x) for x in dataset] == [0, 1, 2, 30, 40]


def test_error_without_autograph_names_a_remedy():
    plain = tf.function(if_else, autograph=False)
    with pytest.raises(TraceError, match=r"use tf\.cond"):
        plain(tf.constant(1.0))
    marked = tf.autograph.experimental.do_not_convert(lambda x: x if x > 0 else -x)
    with pytest.raises(TraceError, match=r"use tf\.cond"):
        tf.function(lambda x: marked(x))(tf.constant(1.0))


def other_shape(x):
    y = tf.zeros(3)
    if x > 0:
        y = tf.zeros(2)
    return y


def other_dtype(x):
    y = tf.zeros(3)
    if x > 0:
        y = tf.zeros(3, tf.int32)
    return y


def one_branch(x):
    if x > 0:
        y = x
    return y + 1


def none_or_tensor(x):
    if x > 0:
        return x


def item_of_one_branch(x):
    mapping = {}
    if x > 0:
        mapping["a"] = x
    return mapping


def growing(x):
    y = tf.zeros(1)
    while x > 0:
        y = tf.concat([y, y], 0)
        x -= 1
    return y


def list_in_loop(x):
    elements = []
    while x > 0:
        elements = [*elements, x]
        x -= 1
    return elements


@pytest.mark.parametrize(
    "program, error, words",
    [
        (other_shape, ShapeError, r"if: 'y' must have one shape"),
        (other_dtype, DTypeError, r"if: 'y' must have one dtype"),
        (one_branch, UnboundLocalError, r"'y' has no value here: only one branch"),
        (
            item_of_one_branch,
            UnboundLocalError,
            r"mapping\['a'\].* has no value, because",
        ),
        (none_or_tensor, TraceError, r"if: .* a Tensor in one branch and None"),
        (growing, ShapeError, r"while: 'y' must have one shape"),
        (list_in_loop, TraceError, r"while: 'elements' is a list before the loop"),
    ],
)
def test_unsupported_control_flow_is_named(program, error, words):
    with pytest.raises(error, match=words):
        tf.function(program)(tf.constant(2.0))


def test_item_set_in_a_loop_is_zero_without_iterations():
    @tf.function
    def last(n):
        mapping = {}
        for i in tf.range(n):
            mapping["last"] = i + 1
        return mapping["last"]

    assert [int(last(tf.constant(n))) for n in (0, 1, 4)] == [0, 1, 4]


def test_tracebacks_show_the_users_line():
    def fails(x):
        if x > 0:
            x = tf.reshape(x, (2, 2))  # this line
        return x

    with pytest.raises(ShapeError) as caught:
        tf.function(fails)(tf.constant(1.0))
    assert "this line" in "".join(traceback.format_exception(caught.value))
