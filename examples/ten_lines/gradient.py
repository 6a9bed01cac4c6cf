"""Fit a circle to points with the gradients of a custom function, in ten lines."""

import toolkit as tk
from toolkit import ops

tk.utils.set_random_seed(0)
angle = 6.28 * tk.random.uniform((500,))
x, y = 3 * ops.cos(angle) + 1, 3 * ops.sin(angle) - 2
circle = tk.Variable([0.0, 0.0, 1.0])  # center and radius
for _ in range(200):
    with tk.GradientTape() as tape:
        distance = ops.hypot(x - circle[0], y - circle[1])
        loss = ops.mean((distance - circle[2]) ** 2)
    circle.assign_sub(0.5 * tape.gradient(loss, circle))
print("centre and radius", circle.numpy())
