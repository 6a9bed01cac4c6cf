"""Tests of the output of a job's processes, as the launcher forwards it."""

import io

import pytest

from toolkit.cli.ranks_output import forward_lines

RULE = "-" * 74 + "\n"
ABORT = "MPI_ABORT was invoked on rank 2\n  Proc: 2\n\nNOTE: killed.\n"


def tag_lines(rank, text):
    lines = text.splitlines(keepends=True)
    return "".join(f"[1,{rank}]<stderr>: {line}" for line in lines)


@pytest.mark.parametrize(
    "variables, expected",
    [
        ("[1,0]<stdout>: one\n[1,12]<stdout>: two\n", "0: one\n12: two\n"),
        ("[0] of mpich\n", "0: of mpich\n"),
        ("[1,0]<stdout>: 10%\r20%\r\n", "0: 10%\r20%\r\n"),
        ("no end", "no end"),
        ("[1,0]<stdout>: \n[1,0]<stdout>: x\n", "0: \n0: x\n"),
        # A script's own lines are forwarded, and the text between them without delay.
        (tag_lines(1, RULE + "mine\n" + RULE), f"1: {RULE}1: mine\n1: {RULE}"),
        (RULE + "signal 9\n" + RULE, RULE + "signal 9\n" + RULE),
        (tag_lines(2, RULE + ABORT + RULE + " \n"), ""),
        (
            RULE + 'prterun has exited due to process 2 calling\n"abort".\n' + RULE,
            "",
        ),
        (
            tag_lines(2, RULE + ABORT) + tag_lines(1, "x\n") + tag_lines(2, RULE),
            "1: x\n",
        ),
    ],
)
def test_lines_have_short_tags_without_redundant_notices(variables, expected):
    passed = io.BytesIO()
    forward_lines(io.BufferedReader(io.BytesIO(variables.encode())), passed)
    assert passed.getvalue().decode() == expected
