"""What listeners hear of a run. Progress bars and trackers are listeners; the loop knows none of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedpace.core import RoundRecord


class Listener:
    """Override what you want to hear."""

    def started(self, config: dict[str, Any], rounds: int, first_round: int) -> None:
        """The run begins, or goes on, at ``first_round``."""

    def warned(self, message: str) -> None:
        """A stage cannot act, or something else that a user would want to know."""

    def finished_round(self, record: RoundRecord) -> None:
        """A round is complete and recorded."""

    def failed(self) -> None:
        """The run stops before its end; the exception goes on."""

    def ended(self, folder: Path | None) -> None:
        """The run is over; ``folder`` is where it was written, if anywhere."""
