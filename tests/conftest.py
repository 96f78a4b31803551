"""Property tests draw the same examples on every machine, and a slow machine is not a failure."""

import torch
from hypothesis import settings

settings.register_profile("fedpace", max_examples=40, deadline=None, derandomize=True, database=None)
settings.load_profile("fedpace")

torch.set_num_threads(1)  # tests run side by side, one per core: a second thread would only spin
