"""Readers of untrusted files, with limits on memory and time.

All readers of formats that can demand more memory than the file size are in this
package: ZIP, HDF5, `.npy`, compressed streams, images and JSON.
"""
