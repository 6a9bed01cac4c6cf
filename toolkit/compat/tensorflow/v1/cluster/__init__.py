"""Graphs on several processes: a master cuts them, the tasks of a cluster run them."""
