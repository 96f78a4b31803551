"""The report: everything about a set of runs in one HTML file that needs no network."""

from fedpace.analysis.report.write import write_report

__all__ = ["write_report"]
