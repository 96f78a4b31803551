"""What client work is: a function of the server's vector, the client's shard and a context."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from fedpace.core import Buffers, FlatModule, Named, Registry, Update
from fedpace.data import Shard
from fedpace.tasks import Classification, Task


@dataclass(frozen=True)
class Context:
    """What the worker lends to one piece of work: its resident model, buffers, a seed and the task.

    All randomness comes from ``seed``, which the engine derives from the run, the round and the client. Hence the
    result depends neither on the worker nor on what it did before. ``extras`` came from the server along with θ (a
    ``pace`` for local steps, SCAFFOLD's ``control``) and nothing else is in them; ``state`` is what this client kept
    from its last turn, ``training`` are its training examples, whichever it is asked to work on, and ``task`` says what
    a loss is.
    """

    model: FlatModule
    buffers: Buffers
    client: int
    seed: int
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    state: Mapping[str, Tensor] = field(default_factory=dict)
    training: Shard | None = None
    task: Task = field(default_factory=Classification)


class ClientWork(Named, ABC):
    """Work of one client in one round. Parameters only, no state.

    Work that is ``stackable`` can also be done for many clients as one computation, by :meth:`stacked`. ``held`` says
    of how many examples of each client such a computation keeps what gradients need.
    """

    @property
    def stackable(self) -> bool:
        """Whether there is such a computation: work of one's own has none unless it says so."""
        return False

    @property
    def held(self) -> int:
        """A batch of each client, or nothing where no gradients are taken."""
        return 0

    @abstractmethod
    def __call__(self, vector: Tensor, shard: Shard, context: Context) -> Update:
        """Start at ``vector`` and answer with an update whose tensors may be views of the resident model."""

    def stacked(self, vector: Tensor, shards: Sequence[Shard], contexts: Sequence[Context]) -> Iterator[Update]:
        """What each client would answer alone, up to rounding. All contexts lend the same model and extras."""
        raise NotImplementedError


works: Registry[ClientWork] = Registry("client work", ClientWork)
