"""In which form a client's vector travels, one format per file."""

from fedpace.wire._wire import AnyWire, Lossy, Wire, wires
from fedpace.wire.bf16 import BF16
from fedpace.wire.float32 import Float32
from fedpace.wire.int8 import Int8
from fedpace.wire.signs import Signs

__all__ = ["BF16", "AnyWire", "Float32", "Int8", "Lossy", "Signs", "Wire", "wires"]
