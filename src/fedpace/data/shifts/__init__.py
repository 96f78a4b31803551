"""Shifts: clients that see the same things differently. One per file, found by name in ``shifts``."""

from fedpace.data.shifts._shift import Mechanism, Population, Shift, shifts
from fedpace.data.shifts.coloured import Coloured, Colouring
from fedpace.data.shifts.rotated import Rotated, Rotation

__all__ = [
    "Coloured",
    "Colouring",
    "Mechanism",
    "Population",
    "Rotated",
    "Rotation",
    "Shift",
    "shifts",
]
