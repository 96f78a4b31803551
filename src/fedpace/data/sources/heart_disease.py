"""Patients of four hospitals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedpace.data.data import Data
from fedpace.data.sources._known import known_file
from fedpace.data.sources._source import Source, sources
from fedpace.data.sources.table import Reading, read_table
from fedpace.data.table import Unseen

CATEGORIES = ("sex", "cp", "fbs", "restecg", "exang", "slope", "thal")
FILE = "heart_disease.csv"


@sources.register("heart_disease")
class HeartDisease(Source):
    """920 patients of four hospitals, 13 features with gaps, and whether they have a heart disease (UCI, 1988).

    Clients are the hospitals: deal it with ``by``, ``column = "hospital"`` and ``test_share = 0.25`` or
    ``held_out = "va"``. Where ``num``, the grade, is above 0, there is a disease. In Switzerland nobody's cholesterol
    was measured, and the file says 0. It is read from ``heart_disease/heart_disease.csv`` under ``$FEDPACE_DATA``,
    ``./data`` or the user cache.

    Parameters: ``unseen``, as for ``table``.
    """

    unseen: Unseen = "missing"

    def load(self) -> Data:
        """Find and read the file."""
        file = known_file(self.name, FILE)
        reading = Reading(
            target="num", kind="classes", leave_out=("hospital",), categories=CATEGORIES, unseen=self.unseen
        )
        data = reading.data(self.name, read_table(file))
        ill = np.array([name != "0" for name in data.train.classes], dtype=np.int64)
        return Data(self.name, replace(data.train, targets=ill[data.train.labels], classes=("healthy", "disease")))
