"""Distributed graphs: a master partitions them, and the tasks of a cluster run them."""
