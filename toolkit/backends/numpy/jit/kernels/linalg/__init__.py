"""Linear algebra on stacks of small matrices: one matrix in each lane of a vector."""

from toolkit.backends.numpy.jit.kernels.linalg.lower import (
    lower_cholesky as lower_cholesky,
    lower_lu as lower_lu,
    lower_qr as lower_qr,
    lower_slogdet as lower_slogdet,
    lower_solve as lower_solve,
    lower_solve_triangular as lower_solve_triangular,
)
