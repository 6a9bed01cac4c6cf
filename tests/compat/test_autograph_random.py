"""Tests of AutoGraph on random programs: a trace has the results of Python."""

import linecache

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf

NAMES = ("a", "b", "c")


class Writer:
    """A writer of functions of `x` with random control flow.

    Args:
        seed: the seed of the random choices.
    """

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.lines = ["def program(x):", "    a, b, c = x, x + 1, 0.5"]
        self.loops = 0

    def value(self):
        kinds = ("{} + 1", "{} * 0.5", "-{}", "{} + {}", "{} - {}", "abs({})")
        kinds += ("max({}, {})", "({} if {} > 0.7 else {})", "2.0")
        return self._filled(self.rng.choice(kinds))

    def test(self):
        kinds = ("{} > 0.3", "{} < {}", "not {} > 1.1", "-1 < {} < 2.2")
        kinds += ("{} > 0 and {} < 1.6", "{} < -0.4 or {} > 0.9")
        return self._filled(self.rng.choice(kinds))

    def _filled(self, form):
        return form.format(*self.rng.choice(NAMES, form.count("{}")))

    def block(self, depth, in_loop):
        """Write statements at a depth; `inside` is true in a loop."""
        for _ in range(self.rng.integers(1, 4)):
            self.statement(depth, in_loop)

    def write(self, depth, text):
        self.lines.append("    " * depth + text)

    def statement(self, depth, in_loop):
        kinds = ["assign"] * 4
        if depth < 5:
            kinds += ["if", "if", "while", "for"]
        if depth > 1:
            kinds += ["return"] + ["break", "continue"] * in_loop
        kind = self.rng.choice(kinds)
        if kind == "assign":
            self.write(depth, f"{self.rng.choice(NAMES)} = {self.value()}")
        elif kind == "if":
            self.write(depth, f"if {self.test()}:")
            self.block(depth + 1, in_loop)
            if self.rng.random() < 0.5:
                self.write(depth, "else:")
                self.block(depth + 1, in_loop)
        elif kind == "while":
            self.loops += 1
            number = f"n{self.loops}"
            self.write(depth, f"{number} = 0")
            self.write(depth, f"while {number} < 4 and ({self.test()}):")
            self.write(depth + 1, f"{number} += 1")
            self.block(depth + 1, True)
        elif kind == "for":
            self.write(depth, "for i in range(3):")
            self.block(depth + 1, True)
            if self.rng.random() < 0.3:
                self.write(depth, "else:")
                self.block(depth + 1, in_loop)
        elif kind == "return":
            self.write(depth, f"return {self.value()} + 0.0, b, c")
        else:
            self.write(depth, kind)

    def program(self):
        """Return the function; its source is registered for tracebacks."""
        self.block(1, False)
        self.write(1, "return a, b, c")
        text, name = "\n".join(self.lines) + "\n", f"<program {id(self)}>"
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        space = {}
        exec(compile(text, name, "exec"), space)
        return space["program"], text


def check(seed):
    program, text = Writer(seed).program()
    traced = tf.function(program, jit_compile=False)
    for number in (-1.3, 0.2, 0.95, 3.1):
        x = np.float32(number)
        expected = np.array([float(y) for y in program(x)])
        actual = np.array([float(y) for y in traced(tf.constant(x))])
        assert np.allclose(actual, expected, 1e-5, 1e-5), (seed, number, text)


@pytest.mark.parametrize("start", range(0, 40, 10))
def test_random_programs(start):
    for seed in range(start, start + 10):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 2000, 50))
def test_many_random_programs(start):
    for seed in range(start, start + 50):
        check(seed)
