"""A plugin of pytest: the marks `cases` and `one_in`, for tests of many cases.

Every process collects each test, and a worker sends three reports of it. This takes
longer than most cases, so `cases` runs the cases of one name in one test. A failure
names each case that failed.
"""

import inspect
from collections import Counter

import pytest


def pytest_addoption(parser):
    parser.addoption(
        "--case",
        default="",
        help="run only the cases whose text contains this, in tests of `cases`",
    )


def pytest_generate_tests(metafunc):
    """Create one test for each name of the mark's cases.

    With the mark `one_in`, a second test, which is slow, runs the cases that are not
    selected.
    """
    marker = metafunc.definition.get_closest_marker("cases")
    if marker is None:
        return
    argument, cases = marker.args
    text = metafunc.config.getoption("case")
    period = _period(metafunc.definition) or 1
    groups = {}
    for index, case in enumerate(cases):
        if text in str(case):
            key = case.name, _is_selected(index, period)
            groups.setdefault(key, []).append(case)
    tests = [
        pytest.param(group, id=name)
        if is_selected
        else pytest.param(group, id=f"{name}-remaining", marks=pytest.mark.slow)
        for (name, is_selected), group in groups.items()
    ]
    metafunc.parametrize(argument, tests)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Call a test for each of its cases, and report all failures together."""
    marker = pyfuncitem.get_closest_marker("cases")
    if marker is None:
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    cases = arguments.pop(marker.args[0])
    failures, skips = {}, []
    for case in cases:
        try:
            pyfuncitem.obj(**{marker.args[0]: case}, **arguments)
        except pytest.skip.Exception as skip:
            skips.append(skip)
        except (Exception, pytest.fail.Exception) as error:
            error.add_note(f"in the case {case}")
            failures[str(case)] = error
    if failures:
        count = f"{len(failures)} of {len(cases)} cases failed"
        summary = "\n".join([f"{count}:", *failures])
        raise BaseExceptionGroup(summary, list(failures.values()))
    if len(skips) == len(cases):
        raise skips[0]
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the tests that `one_in` does not select as slow."""
    counts = Counter()
    for item in items:
        period = _period(item)
        if period is not None and item.get_closest_marker("cases") is None:
            test = item.path, item.originalname
            if not _is_selected(counts[test], period):
                item.add_marker("slow")
            counts[test] += 1


def _period(node):
    """Return n of the mark `one_in(n)`, or None."""
    marker = node.get_closest_marker("one_in")
    return marker and marker.args[0]


def _is_selected(index, period):
    """Return whether `one_in` selects a case.

    The index of the selected case differs between groups, because parameters repeat.
    """
    group, position = divmod(index, period)
    return position == group % period
