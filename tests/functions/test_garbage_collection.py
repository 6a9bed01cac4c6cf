"""Test the pause of collections."""

import gc
import threading

import pytest

import toolkit
from toolkit.functions.garbage_collection import paused_collection


def test_pauses_nest_and_end_with_an_error():
    with pytest.raises(KeyError), paused_collection():
        with paused_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


def test_pauses_of_threads_end_in_any_order():
    entered, leave = threading.Event(), threading.Event()

    def pause():
        with paused_collection():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=pause)
    with paused_collection():
        thread.start()
        entered.wait(10)
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_disabled_collector_stays_disabled():
    gc.disable()
    try:
        with paused_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_compilations_pause_collections():
    states = []

    @toolkit.function
    def double(x):
        states.append(gc.isenabled())
        return 2 * x

    double(1.0)
    assert states == [False] and gc.isenabled()
