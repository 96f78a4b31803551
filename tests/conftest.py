"""Property tests draw the same examples on every machine, and a slow machine is not a failure."""

from hypothesis import settings

settings.register_profile("fedpace", max_examples=40, deadline=None, derandomize=True, database=None)
settings.load_profile("fedpace")
