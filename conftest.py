"""Settings of every test process, made before NumPy is imported."""

import os

# Several test processes share the cores: BLAS threads of one would wait for those of
# another, which costs a time slice each time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
# A test that fails shows where in the package.
os.environ.setdefault("TOOLKIT_TRACEBACK_FILTERING", "off")
