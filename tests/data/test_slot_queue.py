"""Tests of the queue between the threads of a stream and its consumer."""

import threading

import pytest

from toolkit.data.slot_queue import CLOSED, END, Slot, SlotQueue


def queue_of(*slots, total=None):
    queue = SlotQueue(iter("source"), 0, None)
    queue.total = total
    for slot in slots:
        queue.put(slot)
    return queue


def test_slots_after_the_end_are_delivered():
    first, last = Slot(0, None), Slot(1, None)
    queue = queue_of(first, END, last, END, total=2)
    assert [queue.next_slot(delivered) for delivered in range(3)] == [first, last, None]
    assert not queue.is_closed


@pytest.mark.parametrize("total", [None, 1, 2])
def test_slots_before_a_close_are_delivered(total):
    slot = Slot(0, None)
    queue = queue_of(slot, total=total)
    queue.close()
    queue.close()
    assert queue.is_closed and queue.source is CLOSED
    assert [queue.next_slot(delivered) for delivered in range(2)] == [slot, None]
    with pytest.raises(StopIteration):
        next(queue.source)


def test_close_frees_the_source_after_it_wakes_the_consumer():
    class Source:
        def __iter__(self):
            return self

        def __next__(self):
            return 0

        def __del__(self):
            events.append([queue.slots.qsize(), queue.room.qsize()])

    events = []
    queue = SlotQueue(Source(), 0, None)
    queue.close()
    assert events == [[1, 1]]


def test_room_grows_only():
    queue = queue_of()
    for size, expected in ((3, 3), (2, 3), (5, 5)):
        queue.enlarge(size)
        assert queue.room.qsize() == queue.num_slots == expected


def test_each_slot_sets_the_event():
    news = threading.Event()
    queue = SlotQueue(iter(()), 0, news)
    assert not news.is_set()
    queue.put(END)
    assert news.is_set()
