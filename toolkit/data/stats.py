"""Statistics of a pass: a table, a verdict, a trace and a picture."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from toolkit import pictures
from toolkit.data.profiling import Event, PassProfile, StageProfile
from toolkit.files.writing import write_text

if TYPE_CHECKING:
    from toolkit.pictures.picture import Picture

MAX_WAIT_FRACTION = 0.1  # fraction of time: below it, the data is not the bottleneck
COLUMNS = ("stage", "elements", "busy", "waited", "buffer", "workers")


class Stats:
    """Time of each stage in a pass.

    Attributes:
        rows: for each stage a dict: `stage`, `detail`, `elements`, `busy` and `waited`
            in seconds (for its own threads), `buffered` and `capacity` of its buffer,
            `bytes` of an element, `workers`, and the `choices` of AUTOTUNE. A row of
            several stages has `functions`, a dict for each of its maps that ran:
            `stage`, `elements`, and `busy`.
        elapsed: seconds from the first request for an element to the last.
        verdict: a sentence with the slowest stage and advice.

    Args:
        watch: the measurements of the pass.

    Example:
        >>> from toolkit.data import Dataset
        >>> dataset = Dataset.range(4).map(lambda x: x + 1).batch(2)
        >>> _ = list(dataset)
        >>> dataset.stats().rows[0]["stage"], dataset.stats().rows[0]["elements"]
        ('range > map > batch', 2)
    """

    def __init__(self, watch: PassProfile) -> None:
        self._stages = watch.stages
        self._end = watch.ended or perf_counter_ns()
        self._began = watch.started
        self.elapsed: float = (self._end - watch.started) * 1e-9
        self.rows: list[dict[str, Any]] = [self._row(stage) for stage in watch.stages]
        self.verdict: str = self._judge()

    def _row(self, stage: StageProfile) -> dict[str, Any]:
        return {
            "stage": stage.name,
            "detail": stage.detail,
            "elements": stage.elements,
            "busy": stage.busy,
            "waited": stage.waited * 1e-9,
            "buffered": stage.buffered,
            "capacity": stage.capacity,
            "bytes": stage.bytes,
            "workers": stage.workers,
            "choices": list(stage.choices),
            "functions": [
                {"stage": f.name, "elements": f.calls, "busy": f.spent * 1e-9}
                for f in stage.functions
                if f.calls
            ],
        }

    # Verdict

    def _judge(self) -> str:
        last = self._stages[-1]
        share = last.delay / max(self.elapsed, 1e-9)
        if share < MAX_WAIT_FRACTION:
            return (
                "Data is ready when the consumer needs it: the consumer waits "
                f"{share:.0%} of the time."
            )
        slowest = max(self._stages, key=lambda stage: stage.load)
        return (
            f"The consumer waits for data {share:.0%} of the time. The slowest stage "
            f"is {_label(slowest)}: {_advice(slowest, self._stages)}"
        )

    # Table

    def _cells(self) -> Iterator[tuple[str, ...]]:
        for row in self.rows:
            buffer = "" if row["buffered"] is None else str(row["buffered"])
            if row["capacity"]:
                buffer += f"/{row['capacity']}"
            yield (
                row["stage"] + _in_brackets(row["detail"]),
                f"{row['elements']:,}",
                _seconds(row["busy"]),
                _seconds(row["waited"]) if row["waited"] else "",
                buffer,
                str(row["workers"] or ""),
            )
            for function in row["functions"]:
                cells = f"{function['elements']:,}", _seconds(function["busy"])
                yield (f"  {function['stage']}", *cells, "", "", "")

    def __str__(self) -> str:
        table = [COLUMNS, *self._cells()]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in table
        ]
        choices = [f"AUTOTUNE, {s.name}: {c}" for s in self._stages for c in s.choices]
        return "\n".join([*lines, *choices, self.verdict])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        page, numbers = pictures.page, range(1, len(COLUMNS))
        listed = page.table(COLUMNS, self._cells(), "The last pass", numbers)
        return page.join((listed, page.tag("p", self.verdict)))

    # Trace

    def _events(self) -> Iterator[tuple[str, Event]]:
        for stage in self._stages:
            for event in stage.events:
                yield stage.name, event
        for event in consumer_times(self._stages[-1]):
            yield "consumer", event

    def timeline(self, path: str | Path) -> None:
        """Write the elements of each stage for ui.perfetto.dev or chrome://tracing.

        Args:
            path: the JSON file to write.
        """
        events = [
            {
                "name": name,
                "ph": "X",
                "ts": (event.start - self._began) / 1000,
                "dur": (event.end - event.start) / 1000,
                "pid": 1,
                "tid": event.thread,
            }
            for name, event in self._events()
        ]
        write_text(path, json.dumps({"traceEvents": events}))

    def plot(self, to_file: str | Path | None = None) -> Picture:
        """Plot a timeline of the pass; see `Dataset.plot`.

        Args:
            to_file: the path of a picture to write, or None.

        Returns:
            A picture for notebooks.
        """

        def spans(events: Iterable[Event]) -> list[tuple[float, float]]:
            times = ((e.start - self._began, e.end - self._began) for e in events)
            return [(start * 1e-9, end * 1e-9) for start, end in times]

        named: list[tuple[str, Iterable[Event]]]
        named = [(stage.name, stage.events) for stage in self._stages]
        named.append(("consumer", consumer_times(self._stages[-1])))
        rows = [pictures.spans.Row(name, spans(events)) for name, events in named]
        picture = pictures.spans.draw_spans(rows, "Data set", self.verdict)
        if to_file is not None:
            picture.save(to_file)
        return picture


def consumer_times(stage: StageProfile) -> Iterator[Event]:
    """Yield the times between elements: the work of the consumer."""
    events = list(stage.events)
    for before, after in zip(events, events[1:], strict=False):
        yield Event(before.end, after.start, before.thread)


def _label(stage: StageProfile) -> str:
    """Return the name of a stage, or of the map that takes most of its time."""
    function = stage.slowest_function
    if function is None:
        return f"{stage.name}{_in_brackets(stage.detail)}"
    return f"{function.name} in {stage.name}"


def _advice(slowest: StageProfile, stages: Sequence[StageProfile]) -> str:
    last = stages[-1]
    is_map = slowest.name == "map" or slowest.slowest_function is not None
    if is_map and not slowest.workers:
        return (
            "run it in parallel, map(..., num_parallel_calls=AUTOTUNE), with "
            'workers="process" if its function keeps Python busy.'
        )
    if slowest.workers and slowest.computes_elements:
        return (
            'all its threads are busy. Allow more threads, use workers="process" '
            "if its function keeps Python busy, or make it faster."
        )
    if slowest.name in ("batch", "padded_batch", "ragged_batch"):
        return "it combines many small elements; batch earlier, and map full batches."
    if not last.workers and last.name.startswith("prefetch"):
        return (
            "an element takes less than 0.2 ms, so prefetch computes it on demand; "
            "batch more elements, or make this stage faster."
        )
    if not last.workers:
        return "add .prefetch(AUTOTUNE), or read from several sources in parallel."
    if any(stage.copies > 1 for stage in stages):
        return "make this stage faster, or store its results: save(), or cache()."
    return (
        "read from several sources in parallel, by interleave(..., "
        "num_parallel_calls=AUTOTUNE)."
    )


def _in_brackets(detail: str) -> str:
    return f"({detail})" if detail else ""


def _seconds(value: float) -> str:
    if value >= 1:
        return f"{value:.2f} s"
    return f"{value * 1e3:.2f} ms"
