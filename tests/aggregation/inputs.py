"""Families of update matrices on which rules go wrong: what is degenerate in one rule is ordinary in another."""

import torch
from hypothesis import strategies as st

MAX_CLIENTS, MAX_SIZE = 12, 40


def normal(clients, size, generator):
    return torch.randn(clients, size, generator=generator, dtype=torch.float64)


def sparse(clients, size, generator):
    """Two thirds of the entries are exact zeros, so whole rows and columns can be zero."""
    return normal(clients, size, generator) * (torch.rand(clients, size, generator=generator) < 1 / 3)


def dominant(clients, size, generator):
    """One client is a thousand times longer than the others."""
    found = normal(clients, size, generator)
    found[clients // 2] *= 1000
    return found


def faint(clients, size, generator):
    """The second client hardly moved: its squares are below the rounding errors of the others'."""
    found = normal(clients, size, generator)
    found[1:2] *= 1e-16
    return found


def overwhelming(clients, size, generator):
    """The second client makes all others look as if they had not moved."""
    found = normal(clients, size, generator)
    found[1:2] *= 1e18
    return found


def opposite(clients, size, generator):
    """Client 2k+1 is a negative multiple of client 2k: cosine −1."""
    found = normal(clients, size, generator)
    lengths = torch.randint(1, 5, (clients,), generator=generator)
    for i in range(1, clients, 2):
        found[i] = -found[i - 1] * lengths[i]
    return found


def duplicated(clients, size, generator):
    """Only about half of the rows are distinct."""
    return normal((clients + 1) // 2, size, generator).repeat(2, 1)[:clients]


def equal(clients, size, generator):
    return normal(1, size, generator).repeat(clients, 1)


def zero(clients, size, generator):
    return torch.zeros(clients, size, dtype=torch.float64)


def lattice(clients, size, generator):
    """Small integers: sums are exact, ties and zeros are frequent."""
    return torch.randint(-3, 4, (clients, size), generator=generator).double()


FAMILIES = {
    f.__name__: f for f in (normal, sparse, dominant, faint, overwhelming, opposite, duplicated, equal, zero, lattice)
}
SEEDS = st.integers(0, 2**32 - 1)


def make(family, clients, size, seed=0, dtype=torch.float32):
    """One matrix. It is drawn in float64 and rounded, so a seed means the same matrix in either precision."""
    return FAMILIES[family](clients, size, torch.Generator().manual_seed(seed)).to(dtype)


@st.composite
def matrices(draw, families=tuple(FAMILIES), min_clients=1, max_clients=MAX_CLIENTS, dtypes=None):
    return make(
        draw(st.sampled_from(families)),
        draw(st.integers(min_clients, max_clients)),
        draw(st.integers(1, MAX_SIZE)),
        draw(SEEDS),
        draw(st.sampled_from(dtypes or (torch.float32, torch.float64))),
    )


@st.composite
def weighted(draw, **restrictions):
    """A matrix and weights: none, sample counts, counts of which some are zero, or only zeros."""
    updates = draw(matrices(**restrictions))
    kind = draw(st.sampled_from(("none", "counts", "some zero", "all zero")))
    if kind == "none":
        return updates, None
    low, high = {"counts": (1, 500), "some zero": (-3, 5), "all zero": (0, 1)}[kind]
    counts = torch.randint(low, high, (len(updates),), generator=torch.Generator().manual_seed(draw(SEEDS)))
    return updates, counts.clamp_min(0).double()
