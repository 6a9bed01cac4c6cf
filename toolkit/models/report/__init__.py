"""Reports of models as HTML pages."""

from toolkit.models.report.report import write_report

__all__ = ["write_report"]
