"""A threshold on the loss."""

from __future__ import annotations

from fedpace.analysis.membership._adversary import Adversary, Evidence, Scores, adversaries, with_threshold


@adversaries.register("loss")
class LossThreshold(Adversary):
    """An example is a member if the model's loss on it is small (Yeom et al., 2018).

    The threshold is the one that does best on what the attacker is trained on. It works for every task.
    """

    def trained(self, members: Evidence, others: Evidence) -> Scores:
        """Find the threshold."""
        return with_threshold(lambda seen: -seen.losses, members, others)
