"""The doctor: what the records of runs say about why they are not better. One check per file."""

from fedpace.analysis.doctor._finding import Check, Finding, checks, diagnose
from fedpace.analysis.doctor.not_converged import NotConverged

__all__ = ["Check", "Finding", "NotConverged", "checks", "diagnose"]
