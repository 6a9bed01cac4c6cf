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
    met: whether the target is met.
    """

    figure: float
    bar: float
    met: bool

    def __str__(self) -> str:
        return (
            f"{self.figure:.2f}, bar {self.bar:.2f}: {'met' if self.met else 'missed'}"
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


def spread(row: Row, name: str) -> float:
    """Return half the interquartile range of the samples, divided by their median."""
    samples = row["samples"][name]
    if len(samples) < 2:
        return 0.0
    low, _, high = quantiles(samples, n=4, method="inclusive")
    return (high - low) / 2 / median(samples)


def verdict(row: Row) -> Verdict | None:
    """Return whether our ratio to the best peer meets the workload's target."""
    found, bar = ratio(row), WORKLOADS[row["case"]].bar
    if found is None or bar is None:
        return None
    return Verdict(found, bar, found <= bar)


def growth(row: Row) -> dict[str, Verdict]:
    """Return the growth of the time relative to its FLOPs when a size doubles."""
    medians, found = row["median"], {}
    for name, sizes in STACKS.items():
        if name != "base" and {"base", name} <= set(medians):
            work = stack_flops(*sizes) / stack_flops(*STACKS["base"])
            growth = medians[name] / medians["base"] / work
            found[name] = Verdict(growth, GROWTH_BAR, growth <= GROWTH_BAR)
    return found


def speed_up(row: Row) -> Verdict | None:
    """Return the speed-up of two threads over one."""
    medians = row["median"]
    if set(medians) != {"1", "2"}:
        return None
    gain = medians["1"] / medians["2"]
    return Verdict(gain, SPEED_UP_BAR, gain >= SPEED_UP_BAR)


def verdicts(row: Row) -> dict[str, Verdict]:
    """Return the figures of a row that have a target -> their verdicts."""
    if row["case"] == "growth":
        rows = growth(row).items()
        return {f"{name}: time over FLOPs": found for name, found in rows}
    if row["case"] == "speed_up":
        found, what = speed_up(row), "two threads over one"
    else:
        found, what = verdict(row), f"{OURS} / {best_peer(row)}"
    return {what: found} if found else {}


def text(row: Row, judge: bool) -> str:
    """Return the case and each median, and with `judge` the verdicts."""
    kind = KINDS[WORKLOADS[row["case"]].kind if row["case"] in WORKLOADS else "fit"]
    lines = [f"\n{row['case']}, {kind.unit}"]
    for name, value in row["median"].items():
        least = min(row["samples"][name]) * kind.scale
        lines.append(f"  {name:20}{value * kind.scale:12.3f}  (least {least:.3f})")
    for word in ("skipped", "failed"):
        lines += [f"  {name:20}{word}: {why}" for name, why in row[word].items()]
    if judge:
        lines += [f"  {what}: {found}" for what, found in verdicts(row).items()]
    return "\n".join(lines)


def summary(record: Mapping[str, Any]) -> str:
    """Return the number of met targets, and the missed ones."""
    found = [
        (row["case"], one) for row in record["rows"] for one in verdicts(row).values()
    ]
    missed = [f"{case} {one.figure:.2f}" for case, one in found if not one.met]
    return f"{len(found) - len(missed)} of {len(found)} bars met" + (
        f"; missed: {', '.join(missed)}" if missed else ""
    )
