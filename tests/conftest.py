"""Property tests draw the same examples on every machine, and a slow machine is not a failure."""

import os
from pathlib import Path

import torch
from hypothesis import settings

import fedpace

# Processes that tests start import the package that is under test, wherever another one is installed.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(fedpace.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
)

settings.register_profile("fedpace", max_examples=40, deadline=None, derandomize=True, database=None)
settings.load_profile("fedpace")

torch.set_num_threads(1)  # tests run side by side, one per core: a second thread would only spin
