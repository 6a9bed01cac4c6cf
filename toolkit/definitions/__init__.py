"""Definitions of modules and classes: lazy imports, frozen records."""
