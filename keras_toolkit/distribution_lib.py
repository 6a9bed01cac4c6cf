"""Processes and devices."""
