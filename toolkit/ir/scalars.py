"""Vocabulary of scalar rules: a record for each function of one element.

The rule of an elementwise primitive, for example `lambda s, x: s.divide(x, s.sqrt(x))`,
defines one element of its result with the functions of this vocabulary. All properties
of a function are declared in this module. Array kernels, MKL kernels, generated code
and operation costs are derived from them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import inf
from typing import Any

from toolkit.definitions.records import record

Rule = Callable[..., Any]
Interval = tuple[float, float]
EVERYWHERE: Interval = (-inf, inf)


@record(eq=False)
class Scalar:
    """A function of one element in the vocabulary.

    name: name of the function in rules. cost: approximate cost of one element, in
    additions. domain: the range of the first argument for which the result is not NaN.
    is_truth: whether the result is a boolean; otherwise it has the operands' dtype.
    is_whole: whether it rounds to integers: integers stay unchanged. array: the name of
    the function in NumPy and compatible modules; or a function `f(xp, *arrays)` of such
    a module and arrays; "": backends have a kernel for it.
    vml: the name of the MKL function for long arrays; "": it has none. cuda: the name
    of the function for doubles in the CUDA library, or in the prelude of kernels; the
    function for floats has the suffix f.
    llvm: the name of an LLVM intrinsic; or a function of a `Vector` of floats (see
        `toolkit.backends.numpy.jit.math`) if there is no intrinsic with this name.
    """

    name: str
    cost: int = 1
    domain: Interval = EVERYWHERE
    is_truth: bool = False
    is_whole: bool = False
    array: str | Rule = ""
    vml: str = ""
    cuda: str = ""
    llvm: str | Rule = ""


SCALARS: dict[str, Scalar] = {}


def scalar(name: str, **facts: Any) -> Scalar:
    """Declare a function and add it to the vocabulary."""
    if name in SCALARS:
        raise ValueError(f"the scalar function {name!r} is declared twice")
    SCALARS[name] = record = Scalar(name, **{"array": name} | facts)
    return record


# --- functions of floats --------------------------------------------------------------

scalar("exp", cost=12, vml="Exp", cuda="exp")
scalar("exp2", cost=12, vml="Exp2", cuda="exp2")
scalar("expm1", cost=16, vml="Expm1", cuda="expm1")
scalar("log", cost=14, domain=(0, inf), vml="Ln", cuda="log")
scalar("log2", cost=14, domain=(0, inf), vml="Log2", cuda="log2")
scalar("log1p", cost=16, domain=(-1, inf), vml="Log1p", cuda="log1p")
scalar("sqrt", cost=4, domain=(0, inf), cuda="sqrt", llvm="sqrt")
scalar("cbrt", cost=20, vml="Cbrt", cuda="cbrt")
scalar("sin", cost=20, vml="Sin", cuda="sin")
scalar("cos", cost=20, vml="Cos", cuda="cos")
scalar("tan", cost=24, vml="Tan", cuda="tan")
scalar("arcsin", cost=20, domain=(-1, 1), vml="Asin", cuda="asin")
scalar("arccos", cost=20, domain=(-1, 1), vml="Acos", cuda="acos")
scalar("arctan", cost=20, vml="Atan", cuda="atan")
scalar("sinh", cost=20, vml="Sinh", cuda="sinh")
scalar("cosh", cost=20, vml="Cosh", cuda="cosh")
scalar("tanh", cost=16, vml="Tanh", cuda="tanh")
scalar("arcsinh", cost=24, vml="Asinh", cuda="asinh")
scalar("arccosh", cost=24, domain=(1, inf), vml="Acosh", cuda="acosh")
scalar("arctanh", cost=24, domain=(-1, 1), vml="Atanh", cuda="atanh")
scalar("sigmoid", cost=18, array=lambda xp, x: 1 / (1 + xp.exp(-x)), cuda="sigmoid")
scalar("erf", cost=16, array="", vml="Erf", cuda="erf")
scalar("erfinv", cost=30, domain=(-1, 1), array="", vml="ErfInv", cuda="erfinv")
# For composites, which expand where a code generator does not have these functions.
scalar("igamma_ratio", cost=600, array="")
scalar("igammac_ratio", cost=600, array="")
scalar("divide", cost=4)
scalar("power", cost=40, domain=(0, inf), cuda="pow")
scalar("arctan2", cost=24, cuda="atan2")

# --- functions of any number ----------------------------------------------------------

scalar("negative")
scalar("abs", array="absolute")
scalar("sign")
scalar("floor", is_whole=True, cuda="floor", llvm="floor")
scalar("ceil", is_whole=True, cuda="ceil", llvm="ceil")
scalar("round", is_whole=True, array="", cuda="rint", llvm="roundeven")
scalar("trunc", is_whole=True, cuda="trunc", llvm="trunc")
scalar("add")
scalar("subtract")
scalar("multiply")
scalar("floor_divide", cost=12)
scalar("remainder", cost=12)
scalar("gcd", cost=40)
scalar("maximum")
scalar("minimum")

# --- booleans and bits ----------------------------------------------------------------

for _name in (
    *("isnan", "isinf", "isfinite", "equal", "not_equal", "less", "less_equal"),
    *("logical_not", "logical_and", "logical_or", "logical_xor"),
):
    scalar(_name, is_truth=True)
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"):
    scalar(_name)
scalar("bitwise_not", array="invert")

# --- specific to each code generator --------------------------------------------------

scalar("const", cost=0, array="")  # const(number, like)
scalar("select", array="")  # select(condition, a, b)
scalar("cast", array="")  # cast(x, dtype)
scalar("reinterpret", array="")  # reinterpret(x, dtype): the bits of x
scalar("saturate", cost=4, array="")  # saturate(x, dtype, offset, bits)


# --- analysis of a rule ---------------------------------------------------------------


class RuleValue:
    """Placeholder for an argument of a rule, or for the result of a function."""

    __slots__ = ("dtype", "text")

    def __init__(self, text: str, dtype: str) -> None:
        self.text: str = text
        self.dtype: str = dtype

    def __repr__(self) -> str:
        return self.text


@record
class RuleSummary:
    """Summary of a scalar rule.

    Attributes:
        text: the functions, one per line, and the result.
        words: each function with the dtype of its last operand.
        cost: cost of one element, in additions; common subexpressions count once.
        domain: the range of the first input, from the functions that are applied to it.
    """

    text: str
    words: tuple[tuple[str, str], ...]
    cost: int
    domain: Interval


class _RuleRecorder:
    """A vocabulary that records every use."""

    def __init__(self) -> None:
        self.lines: dict[str, RuleValue] = {}
        self.words: list[tuple[str, str]] = []
        self.cost = 0
        self.domain = EVERYWHERE

    def __getattr__(self, name: str) -> Rule:
        if name not in SCALARS:
            raise AttributeError(f"unknown scalar function {name!r}")
        word = SCALARS[name]

        def note(*arguments: Any) -> RuleValue:
            text = f"{name}{arguments!r}"
            if text not in self.lines:
                self.lines[text] = self._result(word, arguments)
            return self.lines[text]

        return note

    def _result(self, word: Scalar, arguments: tuple[Any, ...]) -> RuleValue:
        names = [x for x in arguments if isinstance(x, RuleValue)]
        dtype = names[-1].dtype
        self.words.append((word.name, dtype))
        self.cost += word.cost
        if names[0].text == "x0":
            (low, high), (lower, upper) = self.domain, word.domain
            self.domain = max(low, lower), min(high, upper)
        if word.name in ("cast", "reinterpret", "saturate"):
            dtype = arguments[1]
        return RuleValue(f"v{len(self.lines)}", "bool" if word.is_truth else dtype)


def arity(rule: Rule) -> int:
    """Return the number of inputs of a rule; attributes are keyword arguments."""
    return int(rule.__code__.co_argcount) - 1


@lru_cache(maxsize=4096)
def summarize_rule(
    rule: Rule, dtypes: tuple[str, ...], attrs: tuple[Any, ...] = ()
) -> RuleSummary:
    """Summarize a rule for inputs of these dtypes; "" is any dtype.

    Args:
        rule: the scalar rule of a primitive.
        dtypes: dtypes of the inputs.
        attrs: pairs of names and values.

    Raises:
        AttributeError: the rule uses a function that is not in the vocabulary.
    """
    listener = _RuleRecorder()
    names = [RuleValue(f"x{i}", dtype) for i, dtype in enumerate(dtypes)]
    result = rule(listener, *names, **dict(attrs))
    text = "\n".join([*listener.lines, repr(result)])
    return RuleSummary(text, tuple(listener.words), listener.cost, listener.domain)
