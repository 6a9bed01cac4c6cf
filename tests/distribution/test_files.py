"""Test that a process of a job reads and parses only its rows of files."""

import csv
import gzip
import os
import random

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf
from tests.distribution.jobs import run
from tests.distribution.test_data import Job, share, values
from toolkit.data import (
    CsvDataset,
    Dataset,
    FixedLengthRecordDataset,
    Options,
    TextLineDataset,
    TFRecordDataset,
    TFRecordWriter,
)
from toolkit.errors import DatasetError
from toolkit.functions.local_rows import JobSharing
from toolkit.models.training.sources import make_source

COUNTS = 9, 0, 4, 13  # records in each file
TOTAL = sum(COUNTS)
READS = []


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the same numbers in several formats."""
    folder, number = tmp_path_factory.mktemp("records"), 0
    for index, count in enumerate(COUNTS):
        numbers = range(number, number + count)
        number += count
        texts = list(map(str, numbers))
        (folder / f"{index}.txt").write_text(
            "\r\n".join([*texts, ""] if index else texts)
        )
        with gzip.open(folder / f"{index}.txt.gz", "wt") as file:
            file.writelines(f"{text}\n" for text in texts)
        (folder / f"{index}.csv").write_text(
            "\n".join(["n,x", *(f"{n},a" for n in texts)])
        )
        path = folder / f"{index}.quoted.csv"
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write("n,x\r\n")
            writer = csv.writer(file, quoting=csv.QUOTE_ALL)
            writer.writerows([n, 'two\nlines, "q"'] for n in texts)
        with TFRecordWriter(folder / f"{index}.tfrecord") as writer:
            for text in texts:
                writer.write(text.encode())
        body = b"".join(b"%4d" % n for n in numbers)
        (folder / f"{index}.fixed").write_bytes(b"head" + body + b"end")
    return folder


def paths(folder, suffix):
    return [str(folder / f"{index}.{suffix}") for index in range(len(COUNTS))]


def parsed(record, *columns):
    """Return the number in a record, as a row of a batch."""
    READS.append(int(record))
    return np.full(3, int(record), "float32"), np.float32(int(record))


def lines(folder):
    return TextLineDataset(paths(folder, "txt"))


def table(folder, suffix, **options):
    defaults = ["int32", "string"]
    return CsvDataset(paths(folder, suffix), defaults, header=True, **options)


def records(folder):
    return TFRecordDataset(paths(folder, "tfrecord"))


def fixed(folder, **options):
    return FixedLengthRecordDataset(paths(folder, "fixed"), 4, 4, 3, **options)


def interleaved(folder, **options):
    return Dataset.from_items(paths(folder, "txt")).interleave(
        TextLineDataset, **options
    )


INDEXED = {
    "lines": lambda f: lines(f).map(parsed).batch(4),
    "csv": lambda f: table(f, "csv").map(parsed).batch(4),
    "quoted csv": lambda f: table(f, "quoted.csv").map(parsed).batch(4),
    "records": lambda f: records(f).map(parsed, num_parallel_calls=2).batch(4),
    "fixed": lambda f: fixed(f).map(parsed).batch(4, drop_remainder=True),
    "shuffle of few": lambda f: lines(f).shuffle(5, seed=1).map(parsed).batch(4),
    "shuffle of all": lambda f: records(f).shuffle(99, seed=1).map(parsed).batch(4),
    "full shuffle": lambda f: lines(f).map(parsed).shuffle(None, seed=1).batch(4),
    "two shuffles": lambda f: (
        lines(f).shuffle(9, seed=1).shuffle(99, seed=2).map(parsed).batch(4)
    ),
    "shuffle of a parallel map": lambda f: (
        lines(f).map(parsed, num_parallel_calls=2).shuffle(7, seed=1).batch(4)
    ),
    "prefetch": lambda f: lines(f).prefetch(2).map(parsed, 2).batch(4).prefetch(2),
    "interleave": lambda f: interleaved(f, cycle_length=2).map(parsed).batch(4),
    "blocks": lambda f: (
        interleaved(f, cycle_length=3, block_length=2, num_parallel_calls=2)
        .shuffle(30, seed=1)
        .map(parsed, num_parallel_calls=2)
        .batch(5)
    ),
    "flat map": lambda f: (
        Dataset.from_items(paths(f, "txt"))
        .flat_map(lambda path: TextLineDataset(path).shuffle(3, seed=4).map(parsed))
        .batch(4)
    ),
    "parallel reads": lambda f: (
        TFRecordDataset(paths(f, "tfrecord"), num_parallel_reads=2).map(parsed).batch(4)
    ),
    "files of a data set": lambda f: (
        TextLineDataset(Dataset.list_files(f"{f}/?.txt", seed=3)).map(parsed).batch(4)
    ),
    "subset": lambda f: lines(f).skip(2).shard(2, 1).map(parsed).batch(4),
    "parallel subset": lambda f: lines(f).map(parsed, 2).shard(2, 1).take(9).batch(4),
    "concatenated": lambda f: lines(f).concatenate(lines(f)).map(parsed).batch(4),
    "zip": lambda f: (
        Dataset.zip((lines(f), records(f))).map(parsed).shuffle(99, seed=1).batch(4)
    ),
    "tf.data": lambda f: (
        tf.data.TextLineDataset(paths(f, "txt"))
        .shuffle(8, seed=1)
        .map(lambda line: parsed(line.numpy()), num_parallel_calls=tf.data.AUTOTUNE)
        .batch(4)
        .prefetch(tf.data.AUTOTUNE)
    ),
}


def gzipped(folder):
    return TextLineDataset(paths(folder, "txt.gz"), "GZIP")


rolls = random.Random(0)


def random_path(path):
    return TextLineDataset(path).shuffle(4)


STREAMED = {
    "compressed": lambda f: gzipped(f).map(parsed).batch(4),
    "filter": lambda f: lines(f).map(parsed).filter(lambda x, y: True).batch(4),
    "skipped errors": lambda f: table(f, "csv", skip_errors=True).map(parsed).batch(4),
    "ignored errors": lambda f: lines(f).map(parsed).batch(4).ignore_errors(),
    "interleave of compressed files": lambda f: (
        Dataset.from_items(paths(f, "txt.gz"))
        .interleave(lambda path: TextLineDataset(path, "GZIP"), 2)
        .map(parsed)
        .batch(4)
    ),
    "no order": lambda f: interleaved(f, deterministic=False).map(parsed).batch(4),
}


def source_of(pipeline, rank=0, ranks=1):
    source = make_source(pipeline)
    share(source, rank, ranks)
    return source


def join(shards):
    """Return the full batches from the rows of all ranks."""
    return [
        [np.concatenate(columns) for columns in zip(*batches, strict=True)]
        for batches in zip(*shards, strict=True)
    ]


@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_process_parses_only_its_rows(folder, name, ranks):
    expected = values(source_of(INDEXED[name](folder)).epoch())
    total = sum(len(batch[0]) for batch in expected)
    READS.clear()
    shards = [
        values(source_of(INDEXED[name](folder), rank, ranks).epoch())
        for rank in range(ranks)
    ]
    np.testing.assert_equal(join(shards), expected)
    empty = sum(len(batch[0]) == 0 for shard in shards for batch in shard)
    # Each process reads one row for its test of the function.
    assert len(READS) == total + empty + ranks


@pytest.mark.parametrize("name", STREAMED)
def test_other_data_sets_are_read_by_all_processes(folder, name):
    expected = values(source_of(STREAMED[name](folder)).epoch())
    READS.clear()
    shards = [
        values(source_of(STREAMED[name](folder), rank, 2).epoch()) for rank in range(2)
    ]
    assert len(READS) >= 2 * TOTAL
    if name != "no order":
        np.testing.assert_equal(join(shards), expected)


@pytest.mark.parametrize("name", INDEXED)
def test_positions_are_valid_for_other_numbers_of_ranks(folder, name):
    make = INDEXED[name]
    expected = values(source_of(make(folder)).epoch())
    for saved_by in (1, 3):
        source = source_of(make(folder), 0, saved_by)
        batches = source.epoch()
        next(batches), next(batches)
        state = source.state(within=True)
        for ranks in (1, 2, 3):
            shards = []
            for rank in range(ranks):
                resumed = source_of(make(folder), rank, ranks)
                resumed.restore(state)
                shards.append(values(resumed.epoch()))
            np.testing.assert_equal(join(shards), expected[2:])


def test_later_passes_have_the_same_order(folder):
    def make():
        return lines(folder).map(parsed).shuffle(50, seed=1).cache().shuffle(9).batch(4)

    for pipeline in (make, lambda: lines(folder).shuffle(30, 1).map(parsed).batch(4)):
        sources, expected = [], []
        for rank, ranks in ((0, 1), (0, 2), (1, 2)):
            random.seed(0)  # of the seeds that are not given
            sources.append(source_of(pipeline(), rank, ranks))
        for _ in range(3):
            full, *shards = [values(source.epoch()) for source in sources]
            np.testing.assert_equal(join(shards), full)
            assert not expected or str(full) != str(expected)
            expected = full


def test_large_shuffles_have_the_same_order(tmp_path):
    path = tmp_path / "numbers.txt"
    path.write_text("".join(f"{n}\n" for n in range(70_000)))
    for buffer in (None, 60_000):
        orders = []
        for rank, ranks in ((0, 1), (0, 2), (1, 2)):
            shuffled = TextLineDataset(path).shuffle(buffer, seed=1).batch(10_000)
            batches = shuffled
            if ranks > 1:
                batches = shuffled._local_shard(Job(rank, ranks).rows)
            orders.append([list(batch) for batch in batches])
        full, first, second = orders
        assert [a + b for a, b in zip(first, second, strict=True)] == full


def draw(line):
    return np.full(2, rolls.random()), np.float32(int(line))


@pytest.mark.parametrize("nested", [False, True])
def test_functions_that_draw_run_for_all_rows(folder, nested):
    def make():
        if nested:  # the seeds of its shuffles are drawn
            files = Dataset.from_items(paths(folder, "txt"))
            return files.interleave(random_path, 2).map(parsed).batch(4)
        return lines(folder).map(draw).batch(4)

    results = []
    for rank, ranks in ((0, 1), (0, 2), (1, 2)):
        rolls.seed(0), random.seed(0)
        results.append(values(source_of(make(), rank, ranks).epoch()))
    full, *shards = results
    np.testing.assert_equal(join(shards), full)


def test_elastic_processes_read_all_rows(folder):
    class ElasticJob(Job):
        def __init__(self, rank, ranks):
            super().__init__(rank, ranks)
            self.rows, self.num_processes = range, ranks

    source = make_source(lines(folder).map(parsed).batch(4))
    source.share_batches(JobSharing(ElasticJob(0, 2), compares=False))
    READS.clear()
    assert len(list(source.epoch())) == 7 and len(READS) == TOTAL


CORRUPT = {
    "record": lambda path: path.write_bytes(path.read_bytes()[:-3] + b"X__"),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-5]),
    "header": lambda path: path.write_bytes(
        path.read_bytes()[:40] + b"\7" + path.read_bytes()[41:]
    ),
}


@pytest.mark.parametrize("name", CORRUPT)
def test_corrupt_records_are_reported_as_in_one_process(tmp_path, name):
    path = tmp_path / "numbers.tfrecord"
    with TFRecordWriter(path) as writer:
        for number in range(8):
            writer.write(b"%d" % number * 4)
    CORRUPT[name](path)
    errors = []
    for rank, ranks in ((0, 1), (0, 2), (1, 2)):
        batches = source_of(TFRecordDataset(path).map(parsed).batch(8), rank, ranks)
        try:
            list(batches.epoch())
        except DatasetError as error:
            errors.append(str(error))
    assert errors and "numbers.tfrecord: byte" in errors[0]
    assert len(errors) == 2 and errors[0] == errors[1]


@pytest.mark.parametrize(
    "text",
    [
        '1,a\n"2,b\n3,c\n',
        "1,a\n2\n3,c\n4,d\n",
        '1,a\n2,b\nx,c\n4,"d"\n',
        "1,a\n2,\xff\n",
    ],
)
def test_invalid_rows_are_reported_as_in_one_process(tmp_path, text):
    path = tmp_path / "table.csv"
    path.write_text(text, "latin-1")
    errors = []
    for rank, ranks in ((0, 1), (0, 2), (1, 2)):
        pipeline = CsvDataset(path, ["int32", "string"]).map(parsed).batch(4)
        try:
            list(source_of(pipeline, rank, ranks).epoch())
        except DatasetError as error:
            errors.append(str(error))
    assert 2 <= len(errors) <= 3 and len(set(errors)) == 1


def test_a_missing_file_is_reported(tmp_path):
    pipeline = TextLineDataset(tmp_path / "missing.txt").map(parsed).batch(4)
    with pytest.raises(DatasetError, match=r"missing.txt"):
        list(source_of(pipeline, 0, 2).epoch())


def random_text(draws, size, quotes):
    """Return lines of random lengths, with the line ends of several systems."""
    rows = []
    while size > 0:
        length = draws.choice([int(quotes), 1, 3, 50, 50, 50, 3000])
        text = "".join(draws.choices("abcdefgh", k=length))
        if quotes and draws.random() < 0.1:
            text = '"' + text + draws.choice(['""', "\n", "\r\n", ",", "\r"]) + '"'
        end = draws.choice(["\n", "\n", "\r\n", *(["\r"] if quotes else [])])
        rows.append(f"{text}{end}")
        size -= len(rows[-1])
    return "".join(rows).removesuffix("\n" if draws.random() < 0.5 else "")


@pytest.mark.parametrize("seed", range(8))
def test_all_limits_of_records_are_found(tmp_path, seed):
    """Compare random files with sequential reads, in blocks and in chunks."""
    draws, path = random.Random(seed), tmp_path / "text"
    size = [200, 5_000, 40_000, 2_200_000][seed % 4]
    path.write_bytes(random_text(draws, size, seed >= 4).encode())
    if seed >= 4:
        make = lambda: CsvDataset(path, ["string"])  # noqa: E731
    else:
        make = lambda: TextLineDataset(path)  # noqa: E731
    for shuffle in (lambda x: x, lambda x: x.shuffle(500, seed=1)):
        full, *shards = [
            [np.atleast_2d(np.asarray(batch)) for batch in batches]
            for batches in (
                shuffle(make()).batch(64),
                *(
                    shuffle(make()).batch(64)._local_shard(Job(rank, 2).rows)
                    for rank in range(2)
                ),
            )
        ]
        joined = [np.concatenate(rows, axis=1) for rows in zip(*shards, strict=True)]
        np.testing.assert_equal(joined, full)


def test_a_changed_file_gets_a_new_index(tmp_path):
    path = tmp_path / "numbers.txt"
    os.utime(tmp_path)
    source = source_of(TextLineDataset(path).map(parsed).batch(2), 0, 2)
    for count, age in ((4, 10), (6, 5), (6, 0)):
        path.write_text("".join(f"{age + n}\n" for n in range(count)))
        modified = path.stat().st_mtime - age
        os.utime(path, (modified, modified))
        first_rows = [float(y[0]) for _, y in values(source.epoch())]
        assert first_rows == [age + n for n in range(0, count, 2)]


def test_records_with_options(folder):
    pipeline = lines(folder).map(parsed).batch(4).with_options(Options(threads=2))
    READS.clear()
    list(source_of(pipeline, 1, 2).epoch())
    assert len(READS) < TOTAL


@pytest.mark.parametrize("processes", [2, 4])
@pytest.mark.one_in(2)
def test_files_train_to_equal_bits(tmp_path, processes):
    text = """
    distribution.set_distribution(distribution.DataParallel(shards=4))
    read = []

    def row(line):
        read.append(line)
        number = int(line)
        return np.full(6, number / 41, "float32"), np.float32([number % 3])

    for index in range(3):
        numbers = range(index * 20, min(41, index * 20 + 20))
        Path(f"{rank}-{index}.txt").write_text("".join(f"{n}\\n" for n in numbers))
    files = tk.data.Dataset.from_items([f"{rank}-{index}.txt" for index in range(3)])
    rows = (
        files.interleave(tk.data.TextLineDataset, num_parallel_calls=2)
        .shuffle(20, seed=1)
        .map(row, num_parallel_calls=2)
        .batch(8)
        .prefetch(2)
    )
    model = network()
    model.fit(rows, epochs=2, verbose=0)
    tell([[state_of(model), model.evaluate(rows, verbose=0)], len(read)])
    """
    reports = run(tmp_path, processes, text, seconds=120)
    (single,) = run(tmp_path, 1, text, seconds=120)
    assert single[1] == 3 * 41
    assert [results for results, _ in reports] == [single[0]] * processes
    # The last batch has one row, which all other processes read too.
    looks = 2 * processes  # whether functions of two data sets draw
    assert sum(count for _, count in reports) == 3 * (41 + processes - 1) + looks
