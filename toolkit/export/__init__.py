"""Model export to other programs, with the names of `keras.export`."""

from toolkit.export.archive import ExportArchive as ExportArchive
