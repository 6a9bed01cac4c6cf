"""Samples of matrix products."""

from functools import partial

import numpy as np

from tests.ops.table import distinct, integers, sample, uniform


def product(name, a, b, *args, **options):
    return sample(
        name, uniform(-1, 1, a), uniform(-1, 1, b), *args, tolerance=5, **options
    )


def compute_widened(name, *arguments):
    widened = (x if isinstance(x, str) else x.astype(np.int32) for x in arguments)
    return getattr(np, name)(*widened)


def einsum(subscripts, *shapes, **options):
    tensors = [uniform(-1, 1, shape) for shape in shapes]
    return sample("einsum", subscripts, *tensors, tolerance=10, **options)


SAMPLES = [
    *[
        product("matmul", a, b)
        for a, b in (
            ((3, 4), (4, 2)),
            ((4,), (4, 2)),
            ((3, 4), (4,)),
            ((4,), (4,)),
            ((2, 3, 4), (4, 5)),
            ((2, 1, 3, 4), (5, 4, 2)),
            ((3, 4), (2, 4, 5)),
            ((0, 4), (4, 2)),
            ((3, 0), (0, 2)),
        )
    ],
    sample("matmul", integers(-9, 9, (2, 3)), integers(-9, 9, (3, 2))),
    *[
        sample(
            *(name, *subscripts),
            *(integers(-128, 128, shape).astype(np.int8) for shape in shapes),
            numpy=partial(compute_widened, name),
            dtype="int32",
        )
        for name, *subscripts, shapes in (
            ("matmul", ((2, 3, 70), (70, 5))),
            ("matmul", ((70,), (70, 2))),
            ("einsum", "abc,cd->dab", ((2, 3, 4), (4, 2))),
            ("einsum", "abc,ac->ab", ((2, 3, 4), (2, 4))),
            ("einsum", "ab,bcd->bd", ((2, 3), (3, 4, 2))),
            ("einsum", "ab,bc,cd->d", ((2, 3), (3, 4), (4, 5))),
            ("einsum", "ab->b", ((9, 2),)),
            ("einsum", "ab->ba", ((9, 2),)),
        )
    ],
    *[
        product(name, a, b)
        for name in ("dot", "inner", "outer", "vdot")
        for a, b in (((3, 4), (3, 4)), ((4,), (4,)))
        if name != "dot" or len(a) == 1
    ],
    product("dot", (2, 3, 4), (5, 4, 2)),
    product("dot", (), (3,)),
    product("inner", (2, 3), (4, 3)),
    product("inner", (), (2, 2)),
    product("tensordot", (3, 4, 5), (4, 5, 2)),
    product("tensordot", (3, 4), (3, 4), ((0, 1), (0, 1))),
    product("tensordot", (2, 3, 4), (3, 2), ([1], [0])),
    product("tensordot", (2, 3), (4,), 0),
    product("kron", (2, 3), (3, 2)),
    product("kron", (2,), (2, 2)),
    product("cross", (2, 3), (3,)),
    product("cross", (3, 2), (3, 2), axis=0),
    sample(
        "cross",
        distinct((2, 2)),
        distinct((2, 3)),
        numpy=lambda a, b: np.cross(np.pad(a, ((0, 0), (0, 1))), b),
    ),
    sample(
        "cross",
        distinct((4, 2)),
        distinct((2,)),
        numpy=lambda a, b: a[:, 0] * b[1] - a[:, 1] * b[0],
    ),
    einsum("ij,jk->ik", (2, 3), (3, 4)),
    einsum("ij,jk", (2, 3), (3, 4)),
    einsum("bij,bjk->bik", (2, 3, 4), (2, 4, 2)),
    einsum("bqhd,bkhd->bhqk", (2, 3, 2, 4), (2, 5, 2, 4)),
    einsum("ii->i", (3, 3)),
    einsum("ii", (3, 3)),
    einsum("ijk->ki", (2, 3, 4)),
    einsum("i,j->ji", (2,), (3,)),
    einsum("ij,ij->ij", (2, 3), (2, 3)),
    einsum("bi,bi->b", (2, 3), (2, 3)),
    einsum("ij,ij->", (2, 3), (2, 3)),
    einsum("i,ij,j->", (2,), (2, 3), (3,)),
    einsum("iij,jk,k->i", (3, 3, 2), (2, 4), (4,)),
    einsum("...ij,...jk->...ik", (2, 3, 4), (4, 5)),
    einsum("...,...", (2, 3), (3,)),
    einsum("b...i,i->b...", (2, 3, 4), (4,)),
    einsum("i...->...", (2, 3)),
    einsum("ij,ij->ij", (1, 3), (2, 3)),
    einsum("ij,jk,kl,li->", (2, 3), (3, 4), (4, 5), (5, 2)),
    einsum("ij,jk->ik", (0, 3), (3, 2)),
    sample("einsum", "ij,jk->ik", integers(0, 5, (2, 3)), integers(0, 5, (3, 2))),
]
