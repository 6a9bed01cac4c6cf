"""The order of 1F1B: ranks have no deadlock, and few micro-batches are in flight."""

import pytest

from toolkit.compiler.sharding.pipeline_schedule import schedule_pipeline, stage_at

SIZES = [(s, m) for s in (1, 2, 3, 4) for m in range(1, 9)]


@pytest.mark.parametrize("stages, micro_batches", SIZES)
@pytest.mark.parametrize("backward", [True, False])
def test_each_micro_batch_passes_the_stages_in_order(stages, micro_batches, backward):
    tasks = schedule_pipeline(stages, micro_batches, backward)
    positions = 2 * stages - 1 if backward else stages
    task_at = {(t.position, t.micro_batch): t for t in tasks}
    assert len(task_at) == len(tasks) == positions * micro_batches
    for (position, number), task in task_at.items():
        if position:
            assert task_at[position - 1, number].end <= task.start
        if number:  # sums over micro-batches are added in their order
            assert task_at[position, number - 1].end <= task.start
    for stage in range(stages):
        stage_tasks = [t for t in tasks if stage_at(t.position, stages) == stage]
        assert all(
            a.end <= b.start for a, b in zip(stage_tasks, stage_tasks[1:], strict=False)
        )


@pytest.mark.parametrize("stages, micro_batches", SIZES)
def test_few_micro_batches_are_in_flight(stages, micro_batches):
    for stage in range(stages - 1):
        in_flight = peak = 0
        for task in schedule_pipeline(stages, micro_batches):
            in_flight += task.position == stage
            in_flight -= task.position == 2 * stages - 2 - stage
            peak = max(peak, in_flight)
        assert peak == min(stages - stage, micro_batches)


@pytest.mark.parametrize("stages, micro_batches", SIZES)
def test_idle_share_has_the_known_formula(stages, micro_batches):
    tasks = schedule_pipeline(stages, micro_batches)
    first, last = tasks[0], max(tasks, key=lambda t: t.end)
    busy = 3 * micro_batches
    total = last.end - first.start
    idle = (total - busy) / total
    assert idle == pytest.approx((stages - 1) / (micro_batches + stages - 1))


def test_order_of_two_stages():
    tasks = schedule_pipeline(2, 3)
    first = [(t.position, t.micro_batch) for t in tasks if stage_at(t.position, 2) == 0]
    assert first == [(0, 0), (0, 1), (2, 0), (0, 2), (2, 1), (2, 2)]
