"""Native libraries: models as machine code that C calls, with a header.

`library.export` creates them; `loading.load_native` calls them from Python.
"""
