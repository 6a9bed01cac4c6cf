"""The order of 1F1B: nothing waits in a circle, and little is kept."""

import pytest

from toolkit.compiler.sharding.pipeline_schedule import schedule_pipeline, stage_at

SIZES = [(s, m) for s in (1, 2, 3, 4) for m in range(1, 9)]


@pytest.mark.parametrize("stages, micro_batches", SIZES)
@pytest.mark.parametrize("backward", [True, False])
def test_each_micro_batch_goes_its_way(stages, micro_batches, backward):
    tasks = schedule_pipeline(stages, micro_batches, backward)
    positions = 2 * stages - 1 if backward else stages
    at = {(t.position, t.micro_batch): t for t in tasks}
    assert len(at) == len(tasks) == positions * micro_batches
    for (position, number), task in at.items():
        if position:
            assert at[position - 1, number].end <= task.start
        if number:  # sums over micro-batches are added in their order
            assert at[position, number - 1].end <= task.start
    for stage in range(stages):
        stage_tasks = [t for t in tasks if stage_at(t.position, stages) == stage]
        assert all(
            a.end <= b.start for a, b in zip(stage_tasks, stage_tasks[1:], strict=False)
        )


@pytest.mark.parametrize("stages, micro_batches", SIZES)
def test_few_micro_batches_are_in_flight(stages, micro_batches):
    for stage in range(stages - 1):
        flying = peak = 0
        for task in schedule_pipeline(stages, micro_batches):
            flying += task.position == stage
            flying -= task.position == 2 * stages - 2 - stage
            peak = max(peak, flying)
        assert peak == min(stages - stage, micro_batches)


@pytest.mark.parametrize("stages, micro_batches", SIZES)
def test_bubble(stages, micro_batches):
    tasks = schedule_pipeline(stages, micro_batches)
    first, last = tasks[0], max(tasks, key=lambda t: t.end)
    useful = 3 * micro_batches
    total = last.end - first.start
    idle = (total - useful) / total
    assert idle == pytest.approx((stages - 1) / (micro_batches + stages - 1))


def test_two_stages():
    tasks = schedule_pipeline(2, 3)
    first = [(t.position, t.micro_batch) for t in tasks if stage_at(t.position, 2) == 0]
    assert first == [(0, 0), (0, 1), (2, 0), (0, 2), (2, 1), (2, 2)]
