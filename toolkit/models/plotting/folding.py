"""Folded pictures of large models: fewer boxes for repeated blocks and activations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from toolkit.pictures.boxes import Box, Cell, Cluster

MAX_BOXES = 40  # larger pictures are folded by default
_JOINED = ("Activation", "Dropout", "ELU", "Normalization", "ReLU", "Softmax")
_OUTPUT = "Output shape"
_SHAPES = ("Input shape", _OUTPUT)

Edges = dict[tuple[Box, Box], None]


def count_boxes(cluster: Cluster) -> int:
    """Return the number of boxes, with those of nested clusters."""
    return sum(
        count_boxes(child) if isinstance(child, Cluster) else 1
        for child in cluster.children
    )


def fold(content: Cluster) -> Cluster:
    """Return the content of a picture with fewer boxes.

    A normalization, activation or dropout becomes a row of the box before it. Equal
    consecutive blocks become one block in a frame with their number.
    """
    joined = _replace(content, _join_boxes(content), content.edges)
    return _fold_clusters(joined, joined.edges)


def _replace(cluster: Cluster, new: dict[Box, Box], edges: Edges) -> Cluster:
    """Return a cluster with each box replaced; a box is drawn once."""
    children: dict[Box | Cluster, None] = {}
    for child in cluster.children:
        if isinstance(child, Box):
            children[new.get(child, child)] = None
        else:
            children[_replace(child, new, {})] = None
    pairs = [(new.get(a, a), new.get(b, b)) for a, b in edges]
    remaining = dict.fromkeys((a, b) for a, b in pairs if a is not b)
    return Cluster(cluster.name, list(children), remaining)


# --- rows -----------------------------------------------------------------------------


def _join_boxes(content: Cluster) -> dict[Box, Box]:
    """Return the box with its row for each joined box, and the box before it."""
    new: dict[Box, Box] = {}
    inputs, outputs = _neighbors(content.edges)
    owners = dict(_owners(content))
    for box in owners:
        before = inputs.get(box, [])
        if len(before) != 1 or len(outputs[before[0]]) != 1:
            continue
        if not _is_joined(before[0], box) or owners[before[0]] is not owners[box]:
            continue
        source = new.get(before[0], before[0])
        rows = [*source.rows, [Cell(box.name, box.kind)], *_other_rows(box, source)]
        detail = f"{source.detail}; {box.detail}"
        merged = Box(source.name, source.kind, source.role, rows, detail)
        replaced = [old for old, current in new.items() if current is source]
        new.update(dict.fromkeys([*replaced, before[0], box], merged))
    return new


def _is_joined(source: Box, box: Box) -> bool:
    if source.role == "input" or box.role == "model":
        return False
    return any(name in box.kind for name in _JOINED)


def _other_rows(box: Box, source: Box) -> Iterator[list[Cell]]:
    """Yield the rows of a box without the shapes that the box before it shows."""
    outputs = [cell for row in source.rows for cell in row if cell.label == _OUTPUT]
    shapes = {cell.value for cell in outputs}
    for row in box.rows:
        cells = [x for x in row if x.label not in _SHAPES or x.value not in shapes]
        if cells:
            yield cells


def _owners(cluster: Cluster) -> Iterator[tuple[Box, Cluster]]:
    """Yield each box and its cluster."""
    for child in cluster.children:
        if isinstance(child, Cluster):
            yield from _owners(child)
        else:
            yield child, cluster


def _neighbors(edges: Edges) -> tuple[dict[Box, list[Box]], dict[Box, list[Box]]]:
    """Return the sources of each box, and its targets."""
    inputs: dict[Box, list[Box]] = {}
    outputs: dict[Box, list[Box]] = {}
    for source, target in edges:
        inputs.setdefault(target, []).append(source)
        outputs.setdefault(source, []).append(target)
    return inputs, outputs


# --- blocks ---------------------------------------------------------------------------


class _Repeat(NamedTuple):
    """Equal consecutive blocks: their first box, the boxes of one, and their number."""

    start: int
    size: int
    repeats: int

    @property
    def end(self) -> int:
        return self.start + self.size * self.repeats

    @property
    def num_folded(self) -> int:
        return self.size * (self.repeats - 1)


def _fold_clusters(cluster: Cluster, edges: Edges) -> Cluster:
    """Fold the blocks of a cluster; `edges` receives those of the folded content."""
    children: list[Box | Cluster] = []
    run: list[Box] = []
    for child in cluster.children:
        if isinstance(child, Box):
            run.append(child)
            continue
        children += _fold_run(run, edges)
        run = []
        children.append(_fold_clusters(child, edges))
    children += _fold_run(run, edges)
    return Cluster(cluster.name, children, edges)


def _fold_run(boxes: list[Box], edges: Edges) -> list[Box | Cluster]:
    """Return consecutive boxes with repeated blocks as clusters."""
    repeats = list(_find_repeats(boxes, edges))
    children: list[Box | Cluster] = []
    position = 0
    for repeat in repeats:
        children += boxes[position : repeat.start]
        block = boxes[repeat.start : repeat.start + repeat.size]
        children.append(Cluster(f"{repeat.repeats} times", list(block)))
        _fold_edges(boxes, repeat, edges)
        position = repeat.end
    return [*children, *boxes[position:]]


def _fold_edges(boxes: Sequence[Box], repeat: _Repeat, edges: Edges) -> None:
    """Let the edges of all blocks end at the first one."""
    number: dict[Box, int] = {}
    first: dict[Box, Box] = {}
    for i in range(repeat.start, repeat.end):
        block, index = divmod(i - repeat.start, repeat.size)
        number[boxes[i]], first[boxes[i]] = block, boxes[repeat.start + index]
    pairs = [
        (first.get(a, a), first.get(b, b))
        for a, b in edges
        if a not in number or b not in number or number[a] == number[b]
    ]
    edges.clear()
    edges.update(dict.fromkeys(pairs))


def _find_repeats(boxes: list[Box], edges: Edges) -> Iterator[_Repeat]:
    """Yield the repeated blocks in order; each folds the most boxes from its start."""
    index = {box: i for i, box in enumerate(boxes)}
    sources: list[list[int | Box]] = [[] for _ in boxes]
    for source, target in edges:
        if target in index:
            sources[index[target]].append(index.get(source, source))
    start = 0
    while start < len(boxes):
        best = _Repeat(start, 1, 1)
        for size in range(1, (len(boxes) - start) // 2 + 1):
            repeat = _longest_repeat(boxes, sources, start, size)
            if repeat.num_folded > best.num_folded and _is_closed(repeat, boxes, edges):
                best = repeat
        if best.num_folded > 1:
            yield best
        start = best.end


def _longest_repeat(
    boxes: list[Box], sources: list[list[int | Box]], start: int, size: int
) -> _Repeat:
    """Return the number of equal blocks of a size from a box on."""
    end = start + size
    while end < len(boxes) and _is_equal(boxes, sources, end - size, end, start):
        end += 1
    return _Repeat(start, size, (end - start) // size)


def _is_equal(
    boxes: list[Box], sources: list[list[int | Box]], a: int, b: int, start: int
) -> bool:
    """Return whether a box has the content and the sources of one in the next block."""
    if _signature(boxes[a]) != _signature(boxes[b]):
        return False
    if len(sources[a]) != len(sources[b]):
        return False
    for x, y in zip(sources[a], sources[b], strict=True):
        is_shifted = isinstance(x, int) and isinstance(y, int) and y - x == b - a
        is_outside = x == y and not (isinstance(x, int) and x >= start)
        if not (is_shifted or is_outside):
            return False
    return True


def _signature(box: Box) -> tuple[object, ...]:
    """Return the content of a box without names."""
    values = tuple(cell.value for row in box.rows for cell in row)
    return box.kind, box.role, box.detail, values


def _is_closed(repeat: _Repeat, boxes: list[Box], edges: Edges) -> bool:
    """Return whether boxes after the blocks read only the last one."""
    position = {boxes[i]: i for i in range(repeat.start, repeat.end)}
    last = repeat.end - repeat.size
    return not any(
        a in position and position[a] < last and b not in position for a, b in edges
    )
