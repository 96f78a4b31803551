"""Membership inference: how well can an attacker tell from a model's outputs what it was trained on?"""

from fedpace.analysis.membership._adversary import Adversary, Evidence, Scores, adversaries
from fedpace.analysis.membership._measured import MembershipAttack, attacked, equal_number, membership_attack
from fedpace.analysis.membership.lira import Lira
from fedpace.analysis.membership.lira_offline import OfflineLira
from fedpace.analysis.membership.logits import Logits
from fedpace.analysis.membership.loss import LossThreshold

__all__ = [
    "Adversary",
    "Evidence",
    "Lira",
    "Logits",
    "LossThreshold",
    "MembershipAttack",
    "OfflineLira",
    "Scores",
    "adversaries",
    "attacked",
    "equal_number",
    "membership_attack",
]
