"""Secure aggregation: the server learns sums over clients, and no client's own update."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.app.typing import ConfigRecordValues
from flwr.serverapp import Grid

from fedpace.core import Buffers, ClientError, ConfigError, Update
from fedpace.flower._packing import DOUBLINGS, Opened, Packing
from fedpace.flower._secagg import take_part
from fedpace.flower._secret_sum import ANSWER, PACKING, EndedError, SecretSum, Talk
from fedpace.flower._wire import TOKEN
from fedpace.server import FEWEST, Guard, Secure, Weighing

log = logging.getLogger("fedpace")


@dataclass(frozen=True)
class SecureRound:
    """What an exchange ended with, and sums, or why there are none.

    ``answers`` say of each node why it failed, or the name of what it kept, if it kept anything.
    """

    answers: Mapping[int, int | str | None]
    packing: Packing
    opened: Opened | None = None
    ended: str = ""
    silent: Set[int] = frozenset()  # nodes that did not answer in time

    @property
    def extra_numbers(self) -> int:
        """How many more numbers of 4 bytes were sent than a plain answer has, without keys and shares."""
        plain = self.packing.size + self.packing.floats + self.packing.integers
        masked = sum(part.nbytes for part in self.packing.empty().values())
        return (masked // 4 - plain) * len(self.answers)


class SecureExchange:
    """The server's side: four messages to each node of a cohort, after which the sum of their vectors can be read.

    A node that is lost on the way is left out of the sum, or in it once its vector has arrived, as long as enough
    others hold shares of its secrets. One that sends what its neighbours cannot read is left out alone. The server is
    taken to be curious, but to follow the protocol.
    """

    def __init__(self, grid: Grid, settings: Secure, timeout: float = 600.0) -> None:
        self._grid, self._settings, self._timeout = grid, settings, timeout
        self.bound = settings.bound
        self._distrusted: set[int] = set()  # nodes that made it impossible to open a sum

    def run(self, work: Mapping[int, RecordDict], size: int, buffers: Buffers, weighing: Weighing) -> SecureRound:
        """Send each node its ``work`` on a model of ``size`` coordinates, and sum what they answer."""
        packing = Packing.of(max(len(work), 1), size, buffers, weighing, self._settings, self.bound)
        talk = Talk(self._grid, self._timeout)
        for node in self._distrusted & work.keys():
            talk.answers[node] = "left out: the sum of an earlier round could not be opened because of its shares"
        trusted = {node: content for node, content in work.items() if node not in self._distrusted}
        opened, ended = self._opened(SecretSum(talk, trusted, packing, self._settings), packing)
        if opened is not None:
            self._raise_bound(opened.clipped)
        return SecureRound(talk.answers, packing, opened, ended, talk.silent)

    def _opened(self, secret: SecretSum, packing: Packing) -> tuple[Opened | None, str]:
        """What a sum says, or why it says nothing."""
        try:
            vector, clients = secret.run()
        except EndedError as error:
            self._distrusted |= set() if error.guilty is None else {error.guilty}
            return None, f"secure aggregation ended early, {error}"
        try:
            return packing.open(vector, clients), ""
        except ValueError as error:
            return None, f"secure aggregation: the sums are not used because no clients can have them ({error})"

    def _raise_bound(self, clipped: int) -> None:
        """After values were clipped the bound doubles, but not for ever: that they were is only what clients say."""
        if not clipped:
            return
        before, self.bound = self.bound, min(2 * self.bound, self._settings.bound * 2**DOUBLINGS)
        log.warning("secure aggregation clipped %d values at ±%g; from now on at ±%g", clipped, before, self.bound)


def secure_answer(message: Message, context: Context, train: Callable[[], tuple[Update, Buffers, int]]) -> Message:
    """The client's side: the answer to one message of the protocol.

    ``train`` does the client's work, and gives the update, the buffers that it must fit and the number of coordinates.
    A client whose update the server's guard would refuse says so instead of spoiling the sum, and so does one whose
    node's config wants more clients in a sum (``secure=5``) than could open this one.
    """
    token: dict[str, ConfigRecordValues] = {}

    def vector() -> dict[str, Any]:
        update, buffers, size = train()
        reason = Guard().reason_to_drop(update, size, buffers)
        if reason is not None:
            raise ClientError(reason)
        if update.state is not None:
            token[TOKEN] = int(update.state[TOKEN])
        return Packing.read(message.content.config_records[PACKING]).pack(update)

    content = take_part(message, context, vector, demanded(context) or FEWEST)
    content[ANSWER] = ConfigRecord(token)
    return Message(content, reply_to=message)


def demanded(context: Context) -> int | None:
    """The fewest clients of a sum that this node takes part in, by its own config; ``None`` if it answers openly, too.

    ``secure=true`` demands that there are no open answers, a number also that no sum of less clients can be opened.
    """
    found = context.node_config.get("secure", False)
    if isinstance(found, bool):
        return FEWEST if found else None
    if not isinstance(found, int) or found < FEWEST:
        raise ConfigError(f"node config: secure: expected true, false or a number from {FEWEST}, found {found!r}")
    return found


def refuse_open(context: Context, updates: Sequence[Update]) -> None:
    """Nothing of what a node that demands secrecy has trained leaves it openly."""
    sent = any(update.vector is not None or update.buffers is not None or update.extras for update in updates)
    if sent and demanded(context) is not None:
        raise ClientError("this node's config (secure) lets it train within a secure sum only, found an open question")


def secure_update(client: int, answer: int | str | None) -> Update:
    """What the server hears from one client apart from its part in the sum: the name of what it kept, or a failure."""
    if isinstance(answer, str):
        return Update(client, failure=answer)
    return Update(client, state=None if answer is None else {TOKEN: torch.tensor(answer)})
