"""Tests of CSV rows that end with CR, and of the texts that are numbers."""

import numpy as np
import pytest

import toolkit
from toolkit.data import CsvDataset
from toolkit.errors import DatasetError
from toolkit.reading.text import parse_number

WRONG = ["1_000", "١٢", "１２", "1٫5", "x", "1 2", "0b1"]


def rows(path, data, *arguments, **options):
    path.write_bytes(data)
    return [tuple(row) for row in CsvDataset(str(path), *arguments, **options)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("header", [False, True])
@pytest.mark.parametrize("ends_with_newline", [False, True])
def test_rows_end_with_any_line_end(tmp_path, end, header, ends_with_newline):
    lines = [*(["a,b"] if header else []), "1,x", '2,"y,z"', "3,"]
    data = end.join(lines) + (end if ends_with_newline else "")
    values = rows(tmp_path / "x.csv", data.encode(), [0, ""], header=header)
    assert values == [(1, "x"), (2, "y,z"), (3, "")]


def test_a_line_end_within_quotes_belongs_to_the_field(tmp_path):
    data = b'a,b\r1,"x\ry"\r2,"x\r\ny"\r'
    values = rows(tmp_path / "x.csv", data, [0, ""], header=True)
    assert values == [(1, "x\ry"), (2, "x\r\ny")]


def test_a_pass_over_rows_that_end_with_cr_is_resumed(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"a\r" + b"".join(b"%d\r" % i for i in range(9)))
    dataset = CsvDataset(str(path), [0], header=True)
    iterator = iter(dataset)
    assert [int(next(iterator)[0]) for _ in range(4)] == [0, 1, 2, 3]
    second = iter(dataset)
    second.set_state(iterator.get_state())
    assert [int(x) for (x,) in second] == [4, 5, 6, 7, 8]


@pytest.mark.parametrize("text", WRONG)
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_texts_that_are_not_numbers(tmp_path, text, dtype):
    with pytest.raises(toolkit.errors.ToolkitError, match="x.csv"):
        rows(tmp_path / "x.csv", f"1\n{text}\n".encode(), [dtype])
    with pytest.raises(ValueError):
        parse_number(np.dtype(dtype).type, text)


@pytest.mark.parametrize(
    "text, dtype, value",
    [
        ("-5", "int32", -5),
        (" 5 ", "int64", 5),
        ("+5", "int32", 5),
        ("1e3", "float32", 1000),
        (".5", "float64", 0.5),
        ("inf", "float32", np.inf),
        ("nan", "float32", np.nan),
    ],
)
def test_texts_that_are_numbers(tmp_path, text, dtype, value):
    ((number,),) = rows(tmp_path / "x.csv", f"{text}\n".encode(), [dtype])
    np.testing.assert_equal(float(number), float(value))


def test_columns_of_booleans(tmp_path):
    values = rows(
        tmp_path / "x.csv", b"True\n0\n\nfalse\n1\n".replace(b"\n\n", b"\n"), [True]
    )
    assert [bool(x) for (x,) in values] == [True, False, False, True]
    with pytest.raises(toolkit.errors.ToolkitError, match="true, false"):
        rows(tmp_path / "x.csv", b"maybe\n", [False])


@pytest.mark.parametrize("text", ["1_000", "١٢"])
def test_vocabularies_of_integers(tmp_path, text):
    (tmp_path / "words.txt").write_text(f"3\n{text}\n", encoding="utf-8")
    with pytest.raises(toolkit.errors.ToolkitError, match="expected integers"):
        toolkit.layers.IntegerLookup(vocabulary=str(tmp_path / "words.txt"))


def test_header_without_the_argument_is_explained(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("age,plan\n3,basic\n", "utf-8")
    with pytest.raises(DatasetError, match=r"field 0: .*'age'; if the first.*header="):
        list(CsvDataset(str(path), ["float32", "string"]))
    path.write_text("1,x\nold,y\n", "utf-8")
    with pytest.raises(DatasetError, match=r"record 1: field 0: .*'old'\n"):
        list(CsvDataset(str(path), ["float32", "string"]))


@pytest.mark.parametrize("name", ["float", "int", "str", "flaot32", "bool", "Float32"])
def test_text_that_looks_like_a_dtype_is_reported(tmp_path, name):
    with pytest.warns(UserWarning, match=rf"record_defaults\[1\]='{name}'.*'float32'"):
        CsvDataset("a.csv", [0.0, name])


def test_default_texts_are_accepted(tmp_path):
    CsvDataset("a.csv", ["", "unknown", "?", "string", "float64"])
