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


EXIT = """\
prterun has exited due to process rank 0 with PID 927 on node vm exiting
improperly. There are three reasons this could occur:

1. this process did not call "init" before exiting, but others in the
job did. This can cause a job to hang indefinitely while it waits for
all processes to call "init". By rule, if one process calls "init",
then ALL processes must call "init" prior to termination.

2. this process called "init", but exited without calling "finalize".
By rule, all processes that call "init" MUST call "finalize" prior to
exiting or it will be considered an "abnormal termination"

3. this process called "MPI_Abort" or "prte_abort" and the mca
parameter prte_create_session_dirs is set to false. In this case, the
run-time cannot detect that the abort call was an abnormal
termination. Hence, the only error message you will receive is this
one.

This may have caused other processes in the application to be
terminated by signals sent by prterun (as reported here).

You can avoid this message by specifying -quiet on the prterun command
line.
"""
FAILED = (
    "NBC_Progress: an error 75 was found during schedule 0x55d2caa39081 at "
    "row-offset 24 - aborting the schedule\n"
)


def forward(text, notices):
    passed = io.BytesIO()
    forward_lines(io.BufferedReader(io.BytesIO(text.encode())), passed, notices)
    return passed.getvalue().decode()


@pytest.mark.parametrize(
    "text, expected",
    [
        (RULE + EXIT + RULE, ""),
        (RULE + EXIT + RULE + "mine\n" + RULE, "mine\n" + RULE),
        # A replacement writes lines without tags.
        (RULE + EXIT.replace("\n\n2", "\nmine\n\n2") + RULE + "x\n", "mine\nx\n"),
        (tag_lines(1, FAILED) + FAILED, ""),
        ("LAUNCHER JOB OBJECT NOT FOUND\n", ""),
        (RULE + "mine\n" + RULE, RULE + "mine\n" + RULE),
        ("improperly. There are three reasons this could occur:\n\nline.\n", None),
        ("log: " + FAILED, None),
        (FAILED.replace("75", "16"), None),
        (RULE, None),
        (
            tag_lines(1, RULE + EXIT[:100]),
            f"1: {RULE}1: " + EXIT[:100].replace("\n", "\n1: "),
        ),
    ],
)
def test_messages_about_lost_processes_are_kept_apart(text, expected):
    expected = text if expected is None else expected
    notices = []
    assert forward(text, notices) == expected
    if len(expected) < len(text) and "[1," not in text:
        assert sum(map(len, notices)) == len(text) - len(expected)
    assert forward(text, None).count("error 75") == text.count("error 75")
