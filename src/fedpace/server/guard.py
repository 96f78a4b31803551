"""The server's door: what a client can get wrong never stops the round."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Annotated, Literal

from pydantic import Field, SerializeAsAny
from torch import Tensor

from fedpace.aggregation import largest_value, length
from fedpace.core import Buffers, ClientError, ConfigError, RoundReport, ServerSide, Settings, Update, by_name
from fedpace.server.clipping import Clipping, clippings

LARGEST = 1e15
"""Values and numbers of examples that no honest client sends, and of which no sum leaves the range of float32."""

AnyClipping = SerializeAsAny[Annotated[Clipping, by_name(clippings, "fixed")]]


class Guard(Settings):
    """Checks each update before it is aggregated, and keeps what it may do within bounds.

    ``nonfinite`` says what happens to a client whose vector or buffers hold NaN, infinity or values beyond ±10¹⁵, of
    which sums could overflow: it is dropped and named in the log, the run stops, or the coordinates become zero.
    ``patience``: a run in which the model has not changed for so many rounds in a row stops with the reason.

    Bounds are off unless they are set. Who is beyond one takes part all the same, as far as the bound lets it, and is
    named in the round's record. ``clip``: how long an update may be (one of the ``clippings``). Examples that a client
    declares count up to ``max_examples``, and up to ``growth`` times what this client declared when it first took part;
    no client counts for more than ``max_share`` of its round. For ``max_share`` all updates of a round are kept.
    """

    nonfinite: Literal["drop_client", "raise", "zero_coord"] = "drop_client"
    patience: int = Field(10, ge=1)
    clip: AnyClipping | None = None
    max_share: float | None = Field(None, gt=0, le=1)
    max_examples: int | None = Field(None, ge=1)
    growth: float | None = Field(None, ge=1, allow_inf_nan=False)

    @property
    def needs_all(self) -> bool:
        """Whether a bound depends on all updates of a round."""
        return self.max_share is not None or (self.clip is not None and self.clip.needs_all)

    @property
    def bounded(self) -> list[str]:
        """The names of the bounds that are set."""
        return [name for name in ("clip", "max_share", "max_examples", "growth") if getattr(self, name) is not None]

    def check_cohort(self, clients: int) -> None:
        """Refuse a share that the clients of a round cannot all have."""
        if self.max_share is not None and self.max_share * clients < 1 - 1e-9:
            raise ConfigError(
                f"guard.max_share: shares of at most {self.max_share:g} of {clients} clients make no whole; "
                f"expected at least {1 / clients:.3g}"
            )

    def reason_to_drop(
        self, update: Update, size: int, buffers: Buffers | None = None, server_side: ServerSide | None = None
    ) -> str | None:
        """Why this update cannot be used, or ``None``. It is measured, and with ``zero_coord`` mended, in place."""
        if update.failure:
            return update.failure
        if update.vector is None or not update.examples > 0:
            return "empty"
        if update.examples > LARGEST:
            return f"claims more than {LARGEST:g} examples"
        if update.vector.shape != (size,):
            return f"wrong shape: expected {size} coordinates, found {tuple(update.vector.shape)}"
        if update.buffers is not None and buffers is not None and not update.buffers.fits(buffers):
            return "wrong shape: its buffers do not fit the model's"
        if server_side is not None and not server_side.fits(update.extras):
            return "wrong shape: what it sent along does not fit what the server expects"
        update.norm = length(update.vector)
        # No value is longer than the vector, so few vectors need a closer look.
        sent = [*([] if update.norm <= LARGEST else [update.vector]), *update.extras.values()]
        statistics = [] if update.buffers is None else [update.buffers.floats]
        found = next(filter(None, map(_unusable, (*sent, *statistics))), None)
        if found is None or self.nonfinite == "drop_client":
            return found
        if self.nonfinite == "raise":
            raise ClientError(f"client {update.client} sent values that are {found} (nonfinite = 'raise')")
        for tensor in sent:
            tensor.masked_fill_(~(tensor.abs() <= LARGEST), 0)  # of NaN nothing is true
        update.norm = length(update.vector)
        if any(map(_unusable, statistics)):
            update.buffers = None
        return None

    def reason_to_stop(self, reports: Sequence[RoundReport], rounds: int | None = None) -> str | None:
        """Why a run with these rounds, of ``rounds`` in all, is not to go on; ``None`` if it is."""
        last = reports[-self.patience :]
        long_enough = len(last) == self.patience
        unused = [report.dropped[0].reason if report.dropped else report.still for report in last if not report.used]
        if unused and all(unused) and len(unused) == len(last) and (long_enough or len(last) == rounds):
            return f"no update could be used in {len(last)} rounds; the first one: {unused[0]}"
        if long_enough and all(report.still for report in last):
            return f"the model has not changed in {len(last)} rounds: {last[-1].still}"
        return None


def _unusable(tensor: Tensor) -> str | None:
    """What is wrong with values that came from outside."""
    largest = largest_value(tensor)
    if not isfinite(largest):
        return "not finite"
    return f"larger than {LARGEST:g}" if largest > LARGEST else None
