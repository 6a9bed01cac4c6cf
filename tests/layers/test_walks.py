"""Tests of cached walks: results equal new walks after any change, in any thread."""

import copy
import threading
from random import Random

import pytest

import toolkit
from tests.helpers import threads_running
from toolkit import layers, metrics
from toolkit.layers.tracking import StateOwner, no_tracking
from toolkit.layers.walks import Walk

METHODS = ("_all_layers", "variables", "weights", "metrics")


class Block(layers.Layer):
    def call(self, x):
        return x


class UnreportedList(list):
    """A list that its owner does not replace by a reporting copy."""


def new_walk(owner, name):
    """Return the result of a method without the cache."""
    method = getattr(StateOwner, name)
    return Walk(lambda: getattr(method, "fget", method).__wrapped__(owner)).result


def cached(owner, name):
    result = getattr(owner, name)
    return result() if callable(result) else result


def assert_current(owner):
    for name in METHODS:
        assert list(map(id, cached(owner, name))) == list(
            map(id, new_walk(owner, name))
        )


def change(random, blocks):
    """Change the state of one block in one of the possible ways."""
    block, other = random.sample(blocks, 2)
    part = random.choice(
        [layers.Dense(1), metrics.Mean(), toolkit.Variable(0.0), [], {}, {"a": []}]
    )
    name = random.choice("abc")
    content = vars(block).get(name)
    containers = [part], UnreportedList([part]), (part,)
    match random.randrange(8):
        case 0 if not isinstance(part, list):
            setattr(block, name, part)
        case 1:
            setattr(block, name, random.choice(containers))
        case 2 if blocks.index(other) > blocks.index(block):  # no cycle of owners
            setattr(block, name, [other, {"shared": other}])
        case 3 if isinstance(content, list):
            content.append(part)
            content.reverse()
        case 4 if isinstance(content, list) and content:
            content.pop(random.randrange(len(content)))
        case 5 if name in vars(block):
            delattr(block, name)
        case 6 if isinstance(content, dict):
            content[random.choice("xy")] = part
        case 7:
            block.trainable = not block.trainable


@pytest.mark.parametrize("seed", range(5))
def test_cached_results_are_current_after_random_changes(seed):
    random = Random(seed)
    blocks = [Block() for _ in range(4)]
    for _ in range(100):
        change(random, blocks)
        for block in random.sample(blocks, 2):
            assert_current(block)


def test_changes_of_one_model_leave_the_walks_of_others_valid():
    model, other = Block(), Block()
    model.parts, other.parts = [layers.Dense(1)], [layers.Dense(1)]
    assert model.weights == []
    walk = Walk(lambda: model.weights)
    other.parts.append(layers.Dense(2))
    other.parts[0].build((None, 3))
    assert walk.is_valid() and model.weights == []
    model.parts[0].build((None, 3))
    assert not walk.is_valid() and len(model.weights) == 2


def test_walks_depend_on_owners_that_only_a_method_names():
    class Facade(Block):
        def __init__(self):
            super().__init__()
            with no_tracking():
                self.hidden = Block()

        def _sublayers(self):
            return [self.hidden]

    outer = Block()
    outer.inner = facade = Facade()
    assert outer.weights == []
    facade.hidden.factor = toolkit.Variable(1.0)
    assert outer.weights == [facade.hidden.factor]


def test_copies_have_no_walks():
    block = Block()
    block.part = layers.Dense(1)
    assert_current(block)
    twin = copy.deepcopy(block)
    twin.factor = toolkit.Variable(1.0)
    assert_current(twin)
    assert len(twin.weights) == 1 and block.weights == []


def test_readers_in_other_threads_never_cache_an_old_result():
    block, stop = Block(), threading.Event()
    block.parts = UnreportedList()

    def read():
        while not stop.is_set():
            count = len(block.parts)
            assert len(block.weights) >= count

    with threads_running(read):
        for _ in range(300):
            block.parts = UnreportedList([*block.parts, toolkit.Variable(0.0)])
        stop.set()
    assert_current(block)
