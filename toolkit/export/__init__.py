"""Models for other programs, under the names of `keras.export`."""

from toolkit.export.archive import ExportArchive as ExportArchive
