"""Bytes on the wire, counted as a deployment would send them: 4 bytes a number, personal parts never."""

from __future__ import annotations

from fedpace.core import Buffers, Layout
from fedpace.server.buffers import BufferPolicy
from fedpace.server.schedule import Stage


def traffic(
    stage: Stage, layout: Layout, buffers: Buffers, policy: BufferPolicy, clients: int, frozen: int = 0
) -> tuple[int, int]:
    """Bytes up and down of one round: all exchanges and the search of ``clients`` clients, without extras.

    Of ``frozen`` coordinates no update is sent; the model goes down whole, because a client remembers nothing.
    """
    model = layout.shared.size
    statistics = 0 if policy == "local" else len(buffers.floats) + len(buffers.integers)
    up = down = 0
    if stage.search is not None and stage.search.k:
        points = stage.search.k + 1
        up += points * ((stage.search.sketch or model) + 1)  # a gradient and a loss at θ and at each candidate
        down += model + statistics + 2 * stage.search.k  # candidates travel as seeds of 8 bytes
    for exchange in stage.exchanges():
        if exchange is stage and stage.ends_with_search:
            continue
        sends_statistics = exchange.sends == "update" and policy != "keep_server"
        up += model - frozen + (statistics if sends_statistics else 0)
        down += model + statistics
    return 4 * up * clients, 4 * down * clients
