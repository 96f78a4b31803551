"""What clients under way began with: θ as it was then, buffers, and what was sent along."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from fedpace.core import Buffers, Tensors, with_prefix
from fedpace.server import AskUpdates


@dataclass(frozen=True)
class Version:
    """What the clients were sent that began in a round; ``own`` is what one of them alone was sent."""

    vector: Tensor
    buffers: Buffers
    extras: Tensors
    own: Mapping[int, Tensors]

    @classmethod
    def of(cls, question: AskUpdates, begun: Sequence[int]) -> Version:
        """What a question sends to those who begin with it."""
        own = {client: question.own_extras(client) for client in begun}
        return cls(question.vector, question.buffers, question.extras, own)

    def owned(self) -> Version:
        """The same with tensors of its own: the server's move on."""
        own = {client: _cloned(tensors) for client, tensors in self.own.items()}
        return Version(self.vector.clone(), self.buffers.clone(), _cloned(self.extras), own)


class Versions:
    """Old versions by round, kept as long as a client is under way that began there: never more than are under way."""

    def __init__(self) -> None:
        self._kept: dict[int, Version] = {}

    def with_current(self, number: int, version: Version) -> dict[int, Version]:
        """All that an arriving client may have begun with."""
        return {**self._kept, number: version}

    def keep(self, number: int, version: Version, rounds: Collection[int]) -> None:
        """Keep the versions of these rounds, and no others; that of round ``number`` is still the server's own."""
        current = {number: version.owned()} if number in rounds else {}
        self._kept = {old: kept for old, kept in self._kept.items() if old in rounds} | current

    def state(self) -> Tensors:
        """For a checkpoint."""
        found: Tensors = {}
        for number, version in self._kept.items():
            found[f"{number}.vector"] = version.vector
            found[f"{number}.floats"], found[f"{number}.integers"] = version.buffers.floats, version.buffers.integers
            found |= {f"{number}.extras.{name}": tensor for name, tensor in version.extras.items()}
            for client, own in version.own.items():
                found |= {f"{number}.own.{client}.{name}": tensor for name, tensor in own.items()}
        return found

    def load_state(self, tensors: Tensors) -> None:
        """Go on with the versions of a checkpoint."""
        numbers = {int(name.partition(".")[0]) for name in tensors}
        self._kept = {number: _version(with_prefix(f"{number}.", tensors)) for number in sorted(numbers)}


def _version(tensors: Tensors) -> Version:
    sent_to_one = with_prefix("own.", tensors)
    clients = {name.partition(".")[0] for name in sent_to_one}
    own = {int(client): with_prefix(f"{client}.", sent_to_one) for client in clients}
    buffers = Buffers(tensors["floats"], tensors["integers"])
    return Version(tensors["vector"], buffers, with_prefix("extras.", tensors), own)


def _cloned(tensors: Tensors) -> Tensors:
    return {name: tensor.clone() for name, tensor in tensors.items()}
