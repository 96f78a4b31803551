"""What a format is: a vector as bytes, and the vector that whoever receives them reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import SerializeAsAny
from torch import Tensor

from fedpace.core import Named, Registry, by_name, devices


class Wire(Named, ABC):
    """In which form a client's vector travels. It knows vectors and bytes, both on the host, and nothing else.

    Attributes:
        lossless: Whether what arrives is what was sent.
        tells_zero: Whether each coordinate that is zero arrives as zero.

    """

    lossless: ClassVar[bool] = False
    tells_zero: ClassVar[bool] = True

    @property
    def keeps_residual(self) -> bool:
        """Whether a client adds what one vector lost to its next one."""
        return False

    @abstractmethod
    def bytes_for(self, size: int) -> int:
        """How many bytes so many coordinates take."""

    @abstractmethod
    def encode(self, vector: Tensor, seed: int) -> Tensor:
        """A vector of float32 as a vector of uint8. A format that draws does so from ``seed``."""

    @abstractmethod
    def decode(self, data: Tensor, size: int) -> Tensor:
        """The vector of ``size`` coordinates that these bytes are: as many as :meth:`bytes_for` says."""

    def read(self, data: Tensor, size: int) -> Tensor:
        """The same of bytes that somebody else wrote; a ValueError says what is wrong with them.

        Any bits are numbers to a format. Whether these can be used is for the server's guard to say.
        """
        if data.shape != (self.bytes_for(size),):
            expected = f"{self.bytes_for(size)} bytes of '{self.registered_name()}' for {size} coordinates"
            raise ValueError(f"expected {expected}, found {tuple(data.shape)}")
        return self.decode(data, size)

    def carried(self, vector: Tensor, seed: int) -> Tensor:
        """What arrives of a vector, wherever it lies."""
        if self.lossless:
            return vector
        return self.decode(self.encode(devices.to_host(vector), seed), len(vector)).to(vector.device)


class Lossy(Wire):
    """A format that rounds. What it loses is the ``residual``.

    A client keeps it and adds it to the next vector that it sends (error feedback: Seide et al., 2014; Karimireddy et
    al., 2019). So everything arrives in the end, and rounding need not be unbiased: to the nearest number is best, at
    half the error of stochastic rounding. Residuals are as long as the model. Where each client takes part once or
    twice they are of no use: then they may be ``lost``.
    """

    residual: Literal["kept", "lost"] = "kept"

    @property
    def keeps_residual(self) -> bool:
        """Whether residuals are kept."""
        return self.residual == "kept"


wires: Registry[Wire] = Registry("wire", Wire)
AnyWire = SerializeAsAny[Annotated[Wire, by_name(wires, "float32")]]  # a field for a format: its name or its table


def bits(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The same bits as numbers of another type, in memory of their own."""
    return tensor.clone(memory_format=torch.contiguous_format).view(dtype)  # which even aligns what is empty
