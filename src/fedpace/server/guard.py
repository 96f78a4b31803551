"""The server's door: what a client can get wrong never stops the round."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field, SerializeAsAny
from torch import Tensor

from fedpace.core import Buffers, ClientError, ConfigError, ServerSide, Settings, Update, by_name
from fedpace.server.clipping import Clipping, clippings

AnyClipping = SerializeAsAny[Annotated[Clipping, by_name(clippings, "fixed")]]


class Guard(Settings):
    """Checks each update before it is aggregated, and keeps what it may do within bounds.

    ``nonfinite`` says what happens to a client whose vector or buffers hold NaN or infinity: it is dropped and named in
    the log, the run stops, or the coordinates become zero.

    Bounds are off unless they are set. Who is beyond one takes part all the same, as far as the bound lets it, and is
    named in the round's record. ``clip``: how long an update may be (one of the ``clippings``). Examples that a client
    declares count up to ``max_examples``, and up to ``growth`` times what this client declared when it first took part;
    no client counts for more than ``max_share`` of its round. For ``max_share`` all updates of a round are kept.
    """

    nonfinite: Literal["drop_client", "raise", "zero_coord"] = "drop_client"
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
        """Why this update cannot be used, or ``None``; with ``zero_coord`` its vector is mended in place."""
        if update.failure:
            return update.failure
        if update.vector is None or update.examples <= 0:
            return "empty"
        if update.vector.shape != (size,):
            return f"wrong shape: expected {size} coordinates, found {tuple(update.vector.shape)}"
        if update.buffers is not None and buffers is not None and not update.buffers.fits(buffers):
            return "wrong shape: its buffers do not fit the model's"
        if server_side is not None and not server_side.fits(update.extras):
            return "wrong shape: what it sent along does not fit what the server expects"
        finite = all(map(_is_finite, (update.vector, *update.extras.values())))
        if update.buffers is not None and not _is_finite(update.buffers.floats):
            finite = False
            update.buffers = None if self.nonfinite == "zero_coord" else update.buffers
        if finite:
            return None
        if self.nonfinite == "raise":
            raise ClientError(f"client {update.client} sent values that are not finite (nonfinite = 'raise')")
        if self.nonfinite == "drop_client":
            return "not finite"
        for tensor in (update.vector, *update.extras.values()):
            torch.nan_to_num_(tensor, nan=0.0, posinf=0.0, neginf=0.0)
        return None


def _is_finite(vector: Tensor) -> bool:
    """Whether every value is finite; extremes carry NaN along, and no vector of flags is needed."""
    return not vector.numel() or all(bool(extreme.isfinite()) for extreme in vector.aminmax())
