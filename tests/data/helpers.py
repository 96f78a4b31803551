import io
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fedpace.data import Examples


def png(value, side=4, mode="L"):
    """An encoded image of one colour."""
    file = io.BytesIO()
    Image.new(mode, (side, side), value).save(file, format="png")
    return file.getvalue()


def write_parquet(path, labels, images=None, image="image", label="label", **columns):
    """A file of the hub's schema; the i-th image is grey of value i (mod 256) unless images are given."""
    images = [png(i % 256) for i in range(len(labels))] if images is None else images
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"bytes": data, "path": f"{i}.png"} for i, data in enumerate(images)]
    pq.write_table(pa.table({image: rows, label: labels, **columns}), path)
    return path


def toy(labels, classes=None, **parts):
    """A data set of one-pixel vectors."""
    labels = np.asarray(labels)
    names = tuple(map(str, range(classes or int(labels.max()) + 1)))
    return Examples(np.arange(len(labels), dtype=np.float32)[:, None], labels, names, **parts)


def on_disk(name):
    """A parameter for tests on real data, which ask for the fixture ``real_data``."""
    there = "FEDPACE_DATA" in os.environ and (Path(os.environ["FEDPACE_DATA"]) / name).is_dir()
    return pytest.param(name, marks=pytest.mark.skipif(not there, reason=f"no {name} under FEDPACE_DATA"))
