import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    """As in a run: sums do not depend on the number of threads, and tiny models do not wait for them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
