"""Recurrent cells along a sequence: loops that are known by name.

Each is a composite whose body is the scan of its cell, and computes nothing in another
way. But it says which cell that is, to those who have it whole, as files of ONNX do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit.control_flow.loops import run_scan, scan_p
from toolkit.core.tensor import Tensor, bind
from toolkit.core.trace import decomposable_as
from toolkit.ir import PRIMITIVES, Primitive


def _body(*inputs: Tensor, facts: Any, **attrs: Any) -> Any:
    return bind(scan_p, *inputs, **attrs)


def _recurrent(name: str) -> Primitive:
    """Declare a scan with a name and facts: pairs of names and values."""

    def spec(*specs: Any, facts: Any, **attrs: Any) -> Any:
        return scan_p.spec(*specs, **attrs)

    def vjp(g: Any, y: Any, *inputs: Tensor, facts: Any, **attrs: Any) -> Any:
        if len(attrs["body"].outputs) == 1:  # a rule gets one result as it is
            g, y = (g,), (y,)
        return scan_p.vjp(g, y, *inputs, **attrs)  # type: ignore[misc, operator]

    return decomposable_as(name, spec, _body, vjp)


lstm_p: Primitive = _recurrent("lstm")
gru_p: Primitive = _recurrent("gru")
rnn_p: Primitive = _recurrent("rnn")


def recurrence(
    name: str,
    facts: dict[str, Any],
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    reverse: bool,
) -> tuple[Any, Any]:
    """`scan`, as one node that says what cell it runs where nothing differentiates it.

    Args:
        name: "lstm", "gru" or "rnn".
        facts: of the cell. The first values that f carries are the cell's states, the
            first of xs are its projected inputs; what f reads from outside begins with
            the recurrent kernel.
        f, init, xs, reverse: as for `scan`.
    """
    label = PRIMITIVES[name], tuple(facts.items())
    return run_scan(f, init, xs, None, reverse, 1, label)
