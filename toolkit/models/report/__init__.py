"""The report of a model: one page with all that is known of it."""

from toolkit.models.report.report import write_report

__all__ = ["write_report"]
