"""Files from elsewhere: what is read of them, within which limits.

Every reader of a format that can ask for more than it holds goes through here: ZIP,
HDF5, `.npy`, packed streams, images and JSON.
"""
