"""Programs as object files that C calls.

`images` writes programs down, their addresses counted from bases that are known when
the library is used; `layout` says what is where in a workspace and among the weights;
`tables` are the constants that `library.ll` and `threads.ll` read; `build` links all of
it to one object.
"""
