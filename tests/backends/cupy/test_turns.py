"""The scope of a device: one thread's turn, and what CuPy is asked for it."""

import threading
from types import SimpleNamespace

import pytest

from toolkit.backends.cupy.cuda_device import Turn
from toolkit.errors import DeviceError


class Context:
    """A device or a stream of CuPy that tells when it is entered and left."""

    def __init__(self, name, log, fails=False):
        self.name, self.log, self.fails = name, log, fails

    def __enter__(self):
        if self.fails:
            raise RuntimeError(f"no {self.name}")
        self.log.append(f"+{self.name}")

    def __exit__(self, *exception):
        self.log.append(f"-{self.name}")


@pytest.fixture
def owner():
    log = []
    device, stream = Context("device", log), Context("stream", log)
    return SimpleNamespace(broken=None, device=device, stream=stream, log=log)


def is_free(turn):
    """Whether another thread could have it."""
    found = []

    def take():
        found.append(turn.lock.acquire(blocking=False))
        if found[0]:
            turn.lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return found[0]


def test_only_the_first_of_several_asks_cupy(owner):
    turn = Turn(owner)
    for _ in range(2):
        with turn, turn:
            assert owner.log == ["+device", "+stream"]
            assert not is_free(turn)
        assert owner.log == ["+device", "+stream", "-stream", "-device"]
        assert is_free(turn)
        owner.log.clear()


def test_what_fails_inside_ends_the_turn(owner):
    turn = Turn(owner)
    with pytest.raises(ZeroDivisionError), turn, turn:
        raise ZeroDivisionError
    assert owner.log == ["+device", "+stream", "-stream", "-device"]
    assert is_free(turn)
    assert turn.depth == 0


def test_a_device_that_cannot_be_entered_is_left_as_it_was(owner):
    turn = Turn(owner)
    owner.stream.fails = True
    with pytest.raises(RuntimeError, match="no stream"), turn:
        pass
    assert owner.log == ["+device", "-device"]
    assert is_free(turn)
    assert turn.depth == 0


def test_a_broken_device_has_no_turns(owner):
    owner.broken = DeviceError("gpu:0: a kernel failed")
    with pytest.raises(DeviceError, match="a kernel failed"), Turn(owner):
        pass
