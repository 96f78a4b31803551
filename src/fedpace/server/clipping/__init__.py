"""How long an update may be, one answer per file."""

from fedpace.server.clipping._clipping import Clipping, clippings
from fedpace.server.clipping.adaptive import Adaptive
from fedpace.server.clipping.fixed import Fixed
from fedpace.server.clipping.quantile import Quantile

__all__ = ["Adaptive", "Clipping", "Fixed", "Quantile", "clippings"]
