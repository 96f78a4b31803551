"""What becomes of freed memory, seen from the pages that a process gets anew."""

import ctypes
import resource
from pathlib import Path

import pytest
import torch

from fedpace.core import memory

pytestmark = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc")
LONG = 12_000_000  # numbers: beyond what glibc keeps by itself


def new_pages(times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        torch.ones(LONG)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_freed_memory_serves_again_within_the_context_and_goes_back_at_its_end():
    with memory.freed_kept():
        new_pages(1)
        assert new_pages(5) < 1000  # of 12,000 each
        within = resident()
    assert within - resident() > 3 * LONG
    assert new_pages(1) > 5 or resident() < within  # what is large comes anew, in small pages or in large ones


def test_it_may_be_asked_for_more_than_once():
    memory.keep_freed()
    with memory.freed_kept():
        memory.keep_freed()
    assert torch.ones(3).sum() == 3
