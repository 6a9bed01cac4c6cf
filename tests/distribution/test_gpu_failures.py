"""Errors of one rank of a job on simulated GPUs: they name the rank and the layer."""

import pytest

from tests.backends.cuda.host import GXX
from tests.comm.nccl_ranks import GCC, WHY_NOT
from tests.distribution.test_elastic_gpus import GPUS
from tests.distribution.test_failures import BEGIN, HANDLED

pytestmark = [
    pytest.mark.skipif(GCC is None, reason=WHY_NOT),
    pytest.mark.skipif(GXX is None, reason="g++ is not installed"),
]


@pytest.mark.parametrize(
    "how, name", [("callback", "ValueError"), ("index", "OutOfRangeError")]
)
def test_ranks_that_wait_for_a_gpu_raise_the_error(run_on_gpus, how, name):
    script = GPUS + HANDLED.replace("sys.argv[1]", repr(how))
    reports = run_on_gpus(script, 3)
    assert reports[1][0][0] == name
    for rank in (0, 2):
        (other, message, seconds), _ = reports[rank]
        assert f"rank 1 raised {name}" in message
        if how == "callback":
            assert "on the GPU, for the sum of gradients of sequential/" in message
            assert "in step 3 of epoch 1 of fit" in message
        assert seconds < 20
    for _, (later, message, _) in reports:
        assert later == "CommunicationError" and "start the job again" in message


def test_rank_that_is_late_for_a_gpu_is_named(run_on_gpus):
    script = (
        GPUS
        + BEGIN.replace("sys.argv[1]", "'late'")
        + """
class Sleeps(tk.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 2 and rank == 1:
            time.sleep(100)

model.fit(x, y, batch_size=16, verbose=0, callbacks=[Sleeps()])
"""
    )
    errors = run_on_gpus(script, 3, code=124, timeout=4).errors
    assert "on the GPU, for the sum of gradients of sequential/" in errors
    assert "in step 3 of epoch 1 of fit" in errors
    assert "rank 1 is missing" in errors and "on_train_batch_begin" in errors
    assert "; rank 1 has not reached it" in errors
