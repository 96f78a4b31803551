"""The server's door: what a client can get wrong never stops the round."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedpace.core import Buffers, ClientError, ServerSide, Settings, Update


class Guard(Settings):
    """Checks each update before it is aggregated.

    ``nonfinite`` says what happens to a client whose vector or buffers hold NaN or infinity: it is dropped and named in
    the log, the run stops, or the coordinates become zero.
    """

    nonfinite: Literal["drop_client", "raise", "zero_coord"] = "drop_client"

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
