"""What the processes of a job have to agree on before they run a model."""

from __future__ import annotations

from toolkit import tree
from toolkit.compiler.spreading import Spreading
from toolkit.errors import ArgumentError
from toolkit.models.training.epochs import EpochBatches


def check_same_data(
    job: Spreading, method: str, batches: EpochBatches | None, peek: bool
) -> None:
    """Refuse data of another length or shape than that of other processes.

    Each would run another number of steps, or other ones, and wait for the rest.

    Args:
        job: of the processes.
        method: what is about to run.
        batches: its steps; None: there are none, which all have to agree on too.
        peek: whether to compare the first batch, too.

    Raises:
        ArgumentError: on all processes alike.
    """
    described = "nothing" if batches is None else _described(batches, peek)
    given = job.exchange(described)
    if len(set(given)) == 1:
        return
    groups: dict[str, list[str]] = {}
    for rank, text in enumerate(given):
        groups.setdefault(text, []).append(str(rank))
    parts = [f"{text} on rank {', '.join(n)}" for text, n in groups.items()]
    raise ArgumentError(
        f"{method}: expected data of the same length and shapes on all ranks; "
        f"received {'; '.join(parts)}"
    )


def _described(batches: EpochBatches, peek: bool) -> str:
    source = batches.source
    samples = getattr(source, "samples", None)
    counts = {
        "samples": samples,
        "batches an epoch": batches.num_batches,
        "samples a batch": source.batch_size,
    }
    words = [f"{count} {name}" for name, count in counts.items() if count is not None]
    first = tree.flatten(batches.peek()) if peek else []
    leaves = [leaf for leaf in first if leaf is not None]
    shapes = [f"{tuple(leaf.shape)} {leaf.dtype}" for leaf in leaves]
    if shapes:
        words.append(f"a first batch of {', '.join(shapes)}")
    return ", ".join(words) or "batches of an unknown number"
