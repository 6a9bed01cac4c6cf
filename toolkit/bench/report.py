"""Evaluation of samples: ratios, targets, and a text report for each case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from toolkit.bench.measure import KINDS
from toolkit.bench.workloads import (
    GROWTH_BAR,
    SPEED_UP_BAR,
    STACKS,
    WORKLOADS,
    stack_flops,
)

OURS = "toolkit"
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Verdict:
    """Comparison of a figure with its target.

    figure: the compared figure.
    is_met: whether the target is met.
    """

    figure: float
    bar: float
    is_met: bool

    def __str__(self) -> str:
        return (
            f"{self.figure:.2f}, bar {self.bar:.2f}: "
            f"{'met' if self.is_met else 'missed'}"
        )


def best_peer(row: Row, family: str = "") -> str | None:
    """Return the best peer, or the best with a name that starts with `family`."""
    peers = {
        name: value
        for name, value in row["median"].items()
        if name != OURS and name.startswith(family)
    }
    return min(peers, key=peers.__getitem__) if peers else None


def ratio(row: Row, family: str = "") -> float | None:
    """Return our median divided by the best peer's, if both exist."""
    best, medians = best_peer(row, family), row["median"]
    return medians[OURS] / medians[best] if best and OURS in medians else None


def relative_spread(row: Row, name: str) -> float:
    """Return half the interquartile range of the samples, divided by their median."""
    samples = row["samples"][name]
    if len(samples) < 2:
        return 0.0
    low, _, high = quantiles(samples, n=4, method="inclusive")
    return (high - low) / 2 / median(samples)


def ratio_verdict(row: Row) -> Verdict | None:
    """Return whether our ratio to the best peer meets the workload's target."""
    figure, bar = ratio(row), WORKLOADS[row["case"]].bar
    if figure is None or bar is None:
        return None
    return Verdict(figure, bar, figure <= bar)


def growth_verdicts(row: Row) -> dict[str, Verdict]:
    """Return the growth of the time relative to its FLOPs when a size doubles."""
    medians, results = row["median"], {}
    for name, sizes in STACKS.items():
        if name != "base" and {"base", name} <= set(medians):
            flops_ratio = stack_flops(*sizes) / stack_flops(*STACKS["base"])
            growth = medians[name] / medians["base"] / flops_ratio
            results[name] = Verdict(growth, GROWTH_BAR, growth <= GROWTH_BAR)
    return results


def speed_up_verdict(row: Row) -> Verdict | None:
    """Return the speed-up of two threads over one."""
    medians = row["median"]
    if set(medians) != {"1", "2"}:
        return None
    gain = medians["1"] / medians["2"]
    return Verdict(gain, SPEED_UP_BAR, gain >= SPEED_UP_BAR)


def verdicts(row: Row) -> dict[str, Verdict]:
    """Return the figures of a row that have a target -> their verdicts."""
    if row["case"] == "growth":
        rows = growth_verdicts(row).items()
        return {f"{name}: time over FLOPs": verdict for name, verdict in rows}
    if row["case"] == "speed_up":
        verdict, label = speed_up_verdict(row), "two threads over one"
    else:
        verdict, label = ratio_verdict(row), f"{OURS} / {best_peer(row)}"
    return {label: verdict} if verdict else {}


def format_row(row: Row, with_verdicts: bool) -> str:
    """Return the case and each median, and the verdicts `with_verdicts`."""
    kind = KINDS[WORKLOADS[row["case"]].kind if row["case"] in WORKLOADS else "fit"]
    lines = [f"\n{row['case']}, {kind.unit}"]
    for name, value in row["median"].items():
        minimum = min(row["samples"][name]) * kind.scale
        lines.append(f"  {name:20}{value * kind.scale:12.3f}  (least {minimum:.3f})")
    for status in ("skipped", "failed"):
        lines += [
            f"  {name:20}{status}: {reason}" for name, reason in row[status].items()
        ]
    if with_verdicts:
        lines += [f"  {label}: {verdict}" for label, verdict in verdicts(row).items()]
    return "\n".join(lines)


def format_summary(record: Mapping[str, Any]) -> str:
    """Return the number of met targets, and the missed ones."""
    results = [
        (row["case"], verdict)
        for row in record["rows"]
        for verdict in verdicts(row).values()
    ]
    missed = [
        f"{case} {verdict.figure:.2f}"
        for case, verdict in results
        if not verdict.is_met
    ]
    return f"{len(results) - len(missed)} of {len(results)} bars met" + (
        f"; missed: {', '.join(missed)}" if missed else ""
    )
