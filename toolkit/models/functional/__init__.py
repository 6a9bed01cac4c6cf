"""Models made from symbols, and their graphs as data."""
