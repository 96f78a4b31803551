"""Strategies by name, one per file: each is a rule or a schedule for :class:`ServerStrategy`."""

from fedpace.flower.strategies.conflict_free import ConflictFree
from fedpace.flower.strategies.fedgga import FedGGA
from fedpace.flower.strategies.fedpace import FedPACE
from fedpace.flower.strategies.gradient_masked import GradientMasked
from fedpace.flower.strategies.harmonised import Harmonised
from fedpace.flower.strategies.paced import Paced
from fedpace.flower.strategies.sign_dampened import SignDampened

__all__ = ["ConflictFree", "FedGGA", "FedPACE", "GradientMasked", "Harmonised", "Paced", "SignDampened"]
