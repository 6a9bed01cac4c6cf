"""Test that random numbers of data sets do not depend on threads and processes."""

import functools
import sys
import time

import numpy as np
import pytest

import toolkit
from toolkit import layers, random
from toolkit.data import Dataset

ROWS = 12


def draws_of(function, passes=1, **options):
    """Return the draws of each row, by pass; the seeds are those of a new start."""
    toolkit.utils.set_random_seed(0)
    rows = Dataset.range(ROWS).map(function, **options).batch(ROWS)
    draws = [np.concatenate([np.ravel(x) for x in rows]) for _ in range(passes)]
    return draws if passes > 1 else draws[0]


def slowly(x, generator=None):
    time.sleep(0.002 * (1 + int(x) % 3))  # the last may be ready first
    return random.uniform((), seed=generator)


def with_seed(generator):
    return functools.partial(slowly, generator=generator)


def noisy():
    noise = toolkit.Sequential([toolkit.Input((1,)), layers.GaussianNoise(1.0, seed=3)])
    return lambda x: noise(np.zeros((1, 1), "float32"), training=True)


def compiled():
    generator = random.SeedGenerator(4)
    draw = toolkit.function(lambda x: x + random.normal((), seed=generator))
    return lambda x: draw(np.float32(0))


MAKERS = {
    "generator": lambda: with_seed(random.SeedGenerator(1)),
    "global": lambda: slowly,
    "layer": noisy,
    "function": compiled,
}


@pytest.mark.parametrize("name", MAKERS)
def test_threads_draw_the_same_numbers(name):
    first, second = draws_of(MAKERS[name](), passes=2, num_parallel_calls=2)
    assert len({*first, *second}) == 2 * ROWS
    for threads in (1, 5):
        draws = draws_of(MAKERS[name](), passes=2, num_parallel_calls=threads)
        np.testing.assert_array_equal(draws, [first, second])


def test_batches_of_threads_draw_the_same_numbers():
    def of(threads):
        rows = Dataset.range(ROWS).map(with_seed(random.SeedGenerator(1)))
        return np.concatenate(list(rows.batch(3, num_parallel_calls=threads)))

    draws = of(2)
    assert len({*draws.tolist()}) == ROWS
    np.testing.assert_array_equal(draws, of(4))


@pytest.mark.skipif(sys.platform == "win32", reason="there are no worker processes")
def test_processes_draw_the_same_numbers():
    def of(processes):
        function = with_seed(random.SeedGenerator(1))
        options = {"num_parallel_calls": processes, "workers": "process"}
        return draws_of(function, passes=2, **options)

    first, second = of(3)
    assert len({*first, *second}) == 2 * ROWS
    np.testing.assert_array_equal(of(1), [first, second])


def test_generators_of_an_element_are_new_each_time():
    def draw_twice(x):
        seeds = random.SeedGenerator(5)
        return [float(random.uniform((), seed=seeds)) for _ in range(2)]

    draws = draws_of(draw_twice, num_parallel_calls=3).reshape(ROWS, 2)
    seeds = random.SeedGenerator(5)
    expected = [float(random.uniform((), seed=seeds)) for _ in range(2)]
    np.testing.assert_array_equal(draws, [expected] * ROWS)


def test_other_variables_are_assigned():
    total = toolkit.Variable(0.0)

    def function(x):
        total.assign_add(1.0)
        return random.uniform(())

    draws_of(function, num_parallel_calls=1)
    assert float(total) == ROWS


def test_several_draws_of_an_element_differ():
    generator = random.SeedGenerator(1)

    def function(x):
        return [float(random.uniform((), seed=generator)) for _ in range(3)]

    assert len({*draws_of(function, num_parallel_calls=2).tolist()}) == 3 * ROWS
