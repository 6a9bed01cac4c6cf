"""The engine of packed products, which `matmul`, `integer` and `conv` share.

`problem` selects the operands of a product, `tiling` its register blocks, and
`call_list` collects the calls of a lowering and their scratch memory. `amx` and
`dot_product_tiles` are the micro-kernels of bfloat16 and int8 blocks. `strips` packs
operands for them, `tiled_product` is their driver, and `cost_model` decides whether
they pay. `combine` adds the partial sums of slots.
"""
