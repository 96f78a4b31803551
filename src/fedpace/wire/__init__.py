"""In which form a client's vector travels, one format per file."""

from typing import Annotated

from pydantic import SerializeAsAny

from fedpace.core import by_name
from fedpace.wire._wire import Lossy, Wire, wires
from fedpace.wire.bf16 import BF16
from fedpace.wire.float32 import Float32
from fedpace.wire.int8 import Int8
from fedpace.wire.signs import Signs

AnyWire = SerializeAsAny[Annotated[Wire, by_name(wires, "float32")]]  # a field for a format: its name or its table

__all__ = ["BF16", "AnyWire", "Float32", "Int8", "Lossy", "Signs", "Wire", "wires"]
