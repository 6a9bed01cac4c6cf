"""Plans as data: the operands of kernels, their memory, and loop nests.

The compiler writes plans, and backends read them. A plan depends on neither.
"""
