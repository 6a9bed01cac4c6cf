"""Python functions that call the kernels of a graph, one statement for each node.

A loop over steps would cost more than a small kernel: it reads and unpacks tuples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolkit.backends.kernels import DirectCall, Kernel
from toolkit.ir import Node, Value

Array = Any
# The compiled texts of functions: layers and signatures repeat them.
_CODES: dict[str, Any] = {}
_MAX_CODES = 512


class StepFunction:
    """Writer of a function that runs kernels in order.

    Args:
        inputs: the values that the function receives.
        constants: the arrays of the other values that the kernels read.
    """

    def __init__(
        self, inputs: Sequence[Value], constants: Mapping[Value, Array]
    ) -> None:
        self._names = {value: f"v{i}" for i, value in enumerate((*inputs, *constants))}
        self._inputs = [self._names[x] for x in inputs]
        self._objects = {self._names[x]: array for x, array in constants.items()}
        self._lines: list[str] = []

    def add(self, kernel: Kernel, node: Node, dead: Iterable[Value]) -> None:
        """Append the call of a kernel.

        Args:
            kernel: the kernel.
            node: the node that it computes.
            dead: the results that no later node reads.
        """
        operands = [self._names[x] for x in node.inputs]
        call = self._call(kernel, operands, node.attrs)
        for y in node.outputs:
            self._names[y] = f"v{len(self._names)}"
        results = [self._names[y] for y in node.outputs]
        if node.op.body is None:
            self._lines.append(f"{', '.join(results)} = {call}")
        else:  # the first call of a composite returns None
            self._lines += (f"r = {call}", f"if r is None: r = {call}")
            self._lines += (f"{', '.join(results)} = r",)
        unused = [self._names[x] for x in dead]
        if unused:
            self._lines.append(f"del {', '.join(unused)}")

    def _call(
        self, kernel: Kernel, operands: list[str], attrs: Mapping[str, object]
    ) -> str:
        """Return the expression that calls a kernel."""
        if isinstance(kernel, DirectCall):
            arguments = [*operands, *map(self._name, kernel.arguments)]
            kernel = kernel.function
        else:
            named = [f"{name}={self._name(value)}" for name, value in attrs.items()]
            arguments = [*operands, *named]
        return f"{self._name(kernel)}({', '.join(arguments)})"

    def _name(self, value: object) -> str:
        """Return an expression with this value."""
        if value is None or type(value) in (bool, int):
            return repr(value)
        name = f"c{len(self._objects)}"
        self._objects[name] = value
        return name

    def write(self, outputs: Sequence[Value]) -> Kernel:
        """Return the function. Its result is a tuple, unless there is one output.

        An output that is a constant is a new array in each call.
        """
        names = [self._names[y] for y in outputs]
        results = [f"{y}.copy()" if y in self._objects else y for y in names]
        returned = results[0] if len(results) == 1 else f"({', '.join(results)})"
        lines = (*self._lines, f"return {returned}")
        return make_function(self._inputs, lines, self._objects)


def make_function(
    parameters: Sequence[str], lines: Sequence[str], objects: Mapping[str, object]
) -> Kernel:
    """Return a function with these lines, in which objects are local names.

    Args:
        parameters: the names of the parameters.
        lines: the statements.
        objects: other values that they use, by name.
    """
    body = "\n  ".join(lines)
    text = (
        f"def make({', '.join(objects)}):\n"
        f" def run({', '.join(parameters)}):\n  {body}\n"
        " return run"
    )
    code = _CODES.get(text)
    if code is None:
        if len(_CODES) >= _MAX_CODES:
            _CODES.clear()
        code = _CODES[text] = compile(text, "<kernels of a graph>", "exec")
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    function: Kernel = namespace["make"](**objects)
    return function


def write_steps(
    steps: Sequence[tuple[Kernel, Node]],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    constants: Mapping[Value, Array],
) -> Kernel:
    """Return a function that runs steps, and releases each result after its last use.

    Args:
        steps: kernels and nodes, in order.
        inputs: the values that the function receives.
        outputs: the values that it returns.
        constants: the arrays of the other values that the kernels read.
    """
    function = StepFunction(inputs, constants)
    retained = {*inputs, *constants, *outputs}
    last = {x: i for i, (_, node) in enumerate(steps) for x in node.inputs}
    for i, (kernel, node) in enumerate(steps):
        touched = dict.fromkeys((*node.inputs, *node.outputs))
        dead = [x for x in touched if last.get(x, i) == i and x not in retained]
        function.add(kernel, node, dead)
    return function.write(outputs)
