"""Test the downloaded data sets with small files of the same formats."""

import gzip
import hashlib
import io
import pickle
import tarfile

import numpy as np
import pytest

from toolkit import config
from toolkit.datasets import (
    boston_housing,
    california_housing,
    cifar,
    cifar10,
    cifar100,
    fashion_mnist,
    imdb,
    mnist,
    pickles,
    reuters,
)
from toolkit.datasets.base import RemoteFile
from toolkit.errors import ArgumentError, DatasetError


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "datasets"


@pytest.fixture
def publish(tmp_path, monkeypatch):
    """Write a file that `get_file` can download, as the file of a module."""

    def publish(name, content, module=None, attribute="FILE"):
        (tmp_path / name).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        file = RemoteFile((tmp_path / name).as_uri(), digest)
        if module is not None:
            monkeypatch.setattr(module, attribute, file)
        return file

    return publish


def images(n, *shape):
    return np.random.default_rng(n).integers(0, 256, (n, *shape), np.uint8)


def labels(n, classes=10):
    return np.random.default_rng(n).integers(0, classes, n, np.uint8)


def assert_split(split, expected):
    for pair, expected_pair in zip(split, expected, strict=True):
        for array, expected_array in zip(pair, expected_pair, strict=True):
            assert array.dtype == np.uint8
            assert array.flags.writeable
            np.testing.assert_array_equal(array, expected_array)


# --- MNIST and Fashion-MNIST ----------------------------------------------------------


def test_mnist(publish, cache):
    expected = (images(6, 28, 28), labels(6)), (images(2, 28, 28), labels(2))
    (x_train, y_train), (x_test, y_test) = expected
    stream = io.BytesIO()
    np.savez(stream, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    publish("mnist.npz", stream.getvalue(), mnist)
    assert_split(mnist.load_data(), expected)
    assert_split(mnist.load_data(path="other.npz"), expected)
    assert (cache / "mnist.npz").is_file() and (cache / "other.npz").is_file()


def idx(array):
    header = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes()
    return gzip.compress(header + array.tobytes())


def test_fashion_mnist(publish, monkeypatch, cache):
    expected = (images(6, 28, 28), labels(6)), (images(2, 28, 28), labels(2))
    (x_train, y_train), (x_test, y_test) = expected
    files = {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
    published = {name: publish(name, idx(array)) for name, array in files.items()}
    monkeypatch.setattr(fashion_mnist, "FILES", published)
    assert_split(fashion_mnist.load_data(), expected)
    assert (cache.parent / "datasets" / "fashion-mnist" / "x_train").is_file()


@pytest.mark.parametrize(
    "content", [b"", b"\0\0\x08", b"\0\0\x08\x01\0\0\0\x05abc", b"\1\2\3\4" * 9]
)
def test_corrupt_idx_file_is_refused(tmp_path, content):
    (tmp_path / "x.gz").write_bytes(gzip.compress(content))
    with pytest.raises(DatasetError, match="not a complete idx file"):
        fashion_mnist.read_idx(str(tmp_path / "x.gz"))


# --- CIFAR ----------------------------------------------------------------------------


def batch(n, **entries):
    """Return a batch in the real format: bytes for strings, as Python 2 wrote them."""
    entries = {name.encode(): value for name, value in entries.items()}
    data = images(n, 3, 32, 32)
    content = {b"data": data.reshape(n, 3072), b"batch_label": b"a batch", **entries}
    return data, pickle.dumps(content, protocol=3)


def archive_of(members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


@pytest.fixture(params=["channels_last", "channels_first"])
def data_format(request):
    before = config.image_data_format()
    config.set_image_data_format(request.param)
    yield request.param
    config.set_image_data_format(before)


def in_format(x, data_format):
    return x.transpose(0, 2, 3, 1) if data_format == "channels_last" else x


def test_cifar10(publish, data_format):
    sizes = {f"data_batch_{i}": i for i in range(1, 6)} | {"test_batch": 7}
    data, members = {}, {}
    for name, n in sizes.items():
        data[name], content = batch(n, labels=labels(n).tolist())
        members[f"cifar-10-batches-py/{name}"] = content
    publish("c.tar.gz", archive_of(members), cifar10)
    train = [name for name in sizes if name != "test_batch"]
    x_train = np.concatenate([data[name] for name in train])
    y_train = np.concatenate([labels(sizes[name]) for name in train])
    expected = (
        (in_format(x_train, data_format), y_train[:, None]),
        (in_format(data["test_batch"], data_format), labels(7)[:, None]),
    )
    assert_split(cifar10.load_data(), expected)


@pytest.mark.parametrize("label_mode", ["fine", "coarse"])
def test_cifar100(publish, data_format, label_mode):
    data, members = {}, {}
    for name, n in {"train": 5, "test": 3}.items():
        data[name], content = batch(
            n,
            fine_labels=labels(n, 100).tolist(),
            coarse_labels=labels(n, 20).tolist(),
        )
        members[f"cifar-100-python/{name}"] = content
    publish("c.tar.gz", archive_of(members), cifar100)
    classes = {"fine": 100, "coarse": 20}[label_mode]
    expected = (
        (in_format(data["train"], data_format), labels(5, classes)[:, None]),
        (in_format(data["test"], data_format), labels(3, classes)[:, None]),
    )
    assert_split(cifar100.load_data(label_mode), expected)


def test_cifar100_label_mode():
    with pytest.raises(ArgumentError, match="'coarse', 'fine'; received 'medium'"):
        cifar100.load_data("medium")


class Attack:
    """An object whose pickle calls `function`."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def test_batch_file_cannot_run_code(tmp_path):
    victim = tmp_path / "victim"
    for attack in (
        Attack(eval, f"open({str(victim)!r}, 'w')"),
        Attack(open, str(victim), "w"),
        Attack(np.memmap, str(victim), "u1", "w+", 0, (8,)),
        Attack(np.load, str(victim)),
        Attack(__import__, "antigravity"),
    ):
        path = tmp_path / "batch"
        path.write_bytes(pickle.dumps({b"data": attack, b"labels": []}))
        with pytest.raises(DatasetError, match="UnpicklingError: it names"):
            cifar.load_batch(str(path))
        assert not victim.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a pickle",
        pickle.dumps([1, 2]),
        pickle.dumps({b"labels": [1]}),
        pickle.dumps({b"data": b"no array", b"labels": [1]}),
        pickle.dumps({b"data": np.zeros((1, 3072)), b"labels": [1]}, protocol=3),
        pickle.dumps({b"data": images(2, 3072), b"labels": [1]}, protocol=3),
        pickle.dumps({b"data": images(1, 3072), b"labels": [300]}, protocol=3),
        batch(2, labels=[1, 2])[1][:-3000],
    ],
)
def test_corrupt_batch_file_is_refused(tmp_path, content):
    (tmp_path / "batch").write_bytes(content)
    with pytest.raises(DatasetError, match="is not a batch file"):
        cifar.load_batch(str(tmp_path / "batch"))


def test_missing_batch_file_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="does not contain the file"):
        cifar.load_batch(str(tmp_path / "batch"))


# --- housing --------------------------------------------------------------------------


def archive(**arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


@pytest.mark.parametrize("module", [boston_housing, california_housing])
def test_housing(publish, module):
    x, y = np.arange(1400.0).reshape(700, 2), np.arange(700.0)
    publish("h.npz", archive(x=x, y=y), module)
    (x_train, y_train), (x_test, y_test) = module.load_data(test_split=0.25)
    assert (x_train.shape, y_test.shape) == ((525, 2), (175,))
    order = np.arange(700)
    np.random.RandomState(113).shuffle(order)  # as in Keras
    np.testing.assert_array_equal(np.concatenate([y_train, y_test]), y[order])
    np.testing.assert_array_equal(x_test, x[order[525:]])
    with pytest.raises(ArgumentError, match="test_split must be"):
        module.load_data(test_split=1.0)


def test_california_sizes(publish):
    content = archive(x=np.zeros((700, 8)), y=np.zeros(700))
    publish("h.npz", content, california_housing)
    (x_train, _), (x_test, _) = california_housing.load_data(version="small")
    assert (len(x_train), len(x_test)) == (480, 120)
    with pytest.raises(ArgumentError, match="version: expected one of"):
        california_housing.load_data(version="huge")


# --- texts ----------------------------------------------------------------------------

TEXTS = [[1, 5, 2], [4, 3], [6, 7, 1, 2], [2]]


def texts(lists=TEXTS):
    return pickles.array_of_lists(lists)


def reuters_with(publish, lists=TEXTS, **options):
    content = archive(x=texts(lists), y=np.arange(len(lists)))
    publish("r.npz", content, reuters)
    (x, y), (x_test, _) = reuters.load_data(test_split=0.0, **options)
    assert len(x_test) == 0
    return {int(label): text for label, text in zip(y, x, strict=True)}


@pytest.mark.parametrize(
    "options, expected",
    [
        ({}, [[1, 4, 8, 5], [1, 7, 6], [1, 9, 2, 4, 5], [1, 5]]),
        ({"num_words": 6}, [[1, 4, 2, 5], [1, 2, 2], [1, 2, 2, 4, 5], [1, 5]]),
        ({"num_words": 6, "oov_char": None}, [[1, 4, 5], [1], [1, 4, 5], [1, 5]]),
        ({"skip_top": 5}, [[2, 2, 8, 5], [2, 7, 6], [2, 9, 2, 2, 5], [2, 5]]),
        (
            {"start_char": None, "index_from": 0, "num_words": 99},
            TEXTS,
        ),
        ({"maxlen": 4, "num_words": 99}, {1: [1, 7, 6], 3: [1, 5]}),
    ],
)
def test_texts(publish, options, expected):
    if isinstance(expected, list):
        expected = dict(enumerate(expected))
    assert reuters_with(publish, **options) == expected


def test_texts_of_equal_length_and_no_texts(publish):
    expected = {0: [1, 4, 5], 1: [1, 6, 7]}
    lists = [[1, 2], [3, 4]]
    assert reuters_with(publish, lists, num_words=99) == expected
    with pytest.raises(ArgumentError, match="no text is shorter than maxlen=2"):
        reuters_with(publish, maxlen=2)


def test_imdb(publish):
    y = np.array([0, 1, 1, 0])
    content = archive(x_train=texts(), y_train=y, x_test=texts(TEXTS[:2]), y_test=y[:2])
    publish("i.npz", content, imdb)
    (x_train, y_train), (x_test, y_test) = imdb.load_data(num_words=99)
    assert x_train.dtype == object and x_test.shape == (2,)
    order = np.arange(4)
    np.random.RandomState(113).shuffle(order)  # as in Keras
    assert y_train.tolist() == y[order].tolist() and sorted(y_test) == [0, 1]
    assert x_train[0] == [1, *(word + 3 for word in TEXTS[order[0]])]


def test_imdb_test_split_is_shuffled_after_the_training_split(publish):
    lists, y = [[i] for i in range(30)], np.arange(30)
    content = archive(x_train=texts(lists), y_train=y, x_test=texts(lists), y_test=y)
    publish("i.npz", content, imdb)
    (_, y_train), (x_test, y_test) = imdb.load_data(num_words=99)
    source, orders = np.random.RandomState(113), (np.arange(30), np.arange(30))
    for order in orders:
        source.shuffle(order)  # as in Keras
    assert y_train.tolist() == orders[0].tolist()
    assert y_test.tolist() == orders[1].tolist() != y_train.tolist()
    assert x_test[0] == [1, y_test[0] + 3]


@pytest.mark.parametrize(("share", "sizes"), [(1.0, (0, 4)), (0.5, (2, 2))])
def test_reuters_split_fractions(publish, share, sizes):
    content = archive(x=texts(), y=np.arange(4))
    publish("r.npz", content, reuters)
    (x, _), (_, y_test) = reuters.load_data(test_split=share)
    assert (len(x), len(y_test)) == sizes
    with pytest.raises(ArgumentError, match="from 0 to 1; received 1.5"):
        reuters.load_data(test_split=1.5)


@pytest.mark.parametrize("module", [imdb, reuters])
def test_word_index(publish, module):
    publish("w.json", b'{"the": 1, "of": 2}', module, "WORDS")
    assert module.get_word_index() == {"the": 1, "of": 2}
    publish("v.json", b"[1]", module, "WORDS")
    with pytest.raises(DatasetError, match="expected a dict"):
        module.get_word_index("v.json")


def test_label_names():
    assert len(reuters.get_label_names()) == 46


def test_texts_cannot_run_code(tmp_path):
    victim = tmp_path / "victim"
    content = np.empty(1, object)
    content[0] = Attack(open, str(victim), "w")
    (tmp_path / "x.npz").write_bytes(archive(x=content))
    with pytest.raises(DatasetError, match="UnpicklingError: it names"):
        pickles.load_lists(str(tmp_path / "x.npz"))
    assert not victim.exists()


@pytest.mark.parametrize("value", [["a"], 1, [True], [[1]], np.zeros(2)])
def test_texts_are_integers(tmp_path, value):
    content = np.empty(1, object)
    content[0] = value
    (tmp_path / "x.npz").write_bytes(archive(x=content))
    with pytest.raises(DatasetError, match="lists of whole numbers"):
        pickles.load_lists(str(tmp_path / "x.npz"))


# --- all data sets --------------------------------------------------------------------


@pytest.mark.parametrize(
    "module",
    [
        *(boston_housing, california_housing, cifar10, cifar100, fashion_mnist),
        *(imdb, mnist, reuters),
    ],
)
def test_file_names_contain_a_sha256(module):
    files = module.FILES.values() if hasattr(module, "FILES") else [module.FILE]
    for file in files:
        assert file.url.startswith("https://")
        assert len(bytes.fromhex(file.digest)) == 32


def test_offline_error_names_url_and_path(publish, monkeypatch, tmp_path, cache):
    file = publish("mnist.npz", b"gone soon")
    (tmp_path / "mnist.npz").unlink()
    monkeypatch.setattr(mnist, "FILE", file)
    with pytest.raises(DatasetError) as caught:
        mnist.load_data()
    assert file.url in str(caught.value)
    assert str(cache / "mnist.npz") in str(caught.value)
