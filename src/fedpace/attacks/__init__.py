"""Attacks: what clients that lie do, to find out what a rule bears."""

from fedpace.attacks._attack import Attack, attacks
from fedpace.attacks.against_signs import AgainstSigns
from fedpace.attacks.alie import ALIE
from fedpace.attacks.backdoor import Backdoor
from fedpace.attacks.false_examples import FalseExamples
from fedpace.attacks.free_rider import FreeRider
from fedpace.attacks.gaussian import Gaussian
from fedpace.attacks.inner_product import InnerProduct
from fedpace.attacks.label_flip import LabelFlip
from fedpace.attacks.min_max import MinMax
from fedpace.attacks.min_sum import MinSum
from fedpace.attacks.sign_flip import SignFlip
from fedpace.attacks.silence import Silence

__all__ = [
    "ALIE",
    "AgainstSigns",
    "Attack",
    "Backdoor",
    "FalseExamples",
    "FreeRider",
    "Gaussian",
    "InnerProduct",
    "LabelFlip",
    "MinMax",
    "MinSum",
    "SignFlip",
    "Silence",
    "attacks",
]
