"""Flower without processes: a grid that calls the ClientApp directly. For tests and for debugging.

Everything of Flower's that is private and that we need is in this module.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity


class InProcessGrid(Grid):
    """``nodes`` virtual nodes, each with its own context, in this process. They answer when answers are pulled."""

    def __init__(
        self, app: ClientApp, nodes: int, run_config: dict[str, bool | float | int | str] | None = None
    ) -> None:
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1  # who sends, for `Message`
        self._app, self._run = app, Run.create_empty(1)
        # Ids as random as Flower's own would be, so that nothing can depend on their order.
        self.contexts = {
            (node * 7919 + 104729) % 1_000_003: Context(
                1, node, {"partition-id": node, "num-partitions": nodes}, RecordDict(), dict(run_config or {})
            )
            for node in range(nodes)
        }
        self._names, self._sent = count(), dict[str, Message]()

    def set_run(self, run: Run) -> None:
        """Take part in another run."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run."""
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """A message to a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """All nodes."""
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Keep the messages until their answers are asked for."""
        found = []
        for message in messages:
            found.append(str(next(self._names)))
            message.metadata.__dict__["_message_id"] = found[-1]  # as Flower's grids do
            self._sent[found[-1]] = message
        return found

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The answers, each once."""
        sent = [self._sent.pop(name) for name in message_ids if name in self._sent]
        return [reply for message in sent for reply in self.replies(message)]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Answer the messages at once."""
        return self.pull_messages(self.push_messages(messages))

    def replies(self, message: Message) -> list[Message]:
        """What a node replies to a message: one answer."""
        return [self._answer(message)]

    def _answer(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        try:
            return self._app(message, self.contexts[node])
        except Exception as error:  # as a SuperNode does: the server hears of it, and goes on
            reason = f"{type(error).__name__}: {error}"
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
