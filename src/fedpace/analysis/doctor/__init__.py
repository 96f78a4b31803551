"""The doctor: what the records of runs say about why they are not better. One check per file."""

from fedpace.analysis.doctor._finding import Check, Finding, MethodCheck, checks, diagnose
from fedpace.analysis.doctor.harmed_clients import HarmedClients
from fedpace.analysis.doctor.idle_stage import IdleStage
from fedpace.analysis.doctor.lost_client import LostClient
from fedpace.analysis.doctor.not_converged import NotConverged
from fedpace.analysis.doctor.opposed_client import OpposedClient
from fedpace.analysis.doctor.seed_noise import SeedNoise

__all__ = [
    "Check",
    "Finding",
    "HarmedClients",
    "IdleStage",
    "LostClient",
    "MethodCheck",
    "NotConverged",
    "OpposedClient",
    "SeedNoise",
    "checks",
    "diagnose",
]
