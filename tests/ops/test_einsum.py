"""Test dtypes of einsum that differ from the dtypes of its operands."""

from toolkit import ops


def test_int8_with_bool_is_int8():
    x = ops.full((2, 3), 3, "int8")
    y = ops.einsum("ij,jk->ik", x, ops.ones((3, 2), "bool"))
    assert y.dtype == "int8"
    assert y.numpy().tolist() == [[9, 9], [9, 9]]
    assert ops.einsum("ij,jk->ik", x, ops.ones((3, 2), "int8")).dtype == "int32"
