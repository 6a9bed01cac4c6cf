"""The benchmark suite: networks in Keras code, how they are timed, and their bars.

`python -m toolkit bench` runs it. The same files run in other libraries' environments,
with Keras under the name of toolkit: nothing here is imported before it is measured.
"""
