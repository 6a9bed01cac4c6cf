"""Programs as object files with a C interface.

`images` serializes programs with addresses relative to bases that the user of the
library allocates. `layout` assigns offsets in the workspace and in the weights.
`tables` defines the constants that `library.ll` and `threads.ll` read. `build` links
everything to one object.
"""
