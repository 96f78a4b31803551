"""A probe: one batch's gradient where a path of seeds leads."""

import pytest
import torch

from fedpace.client import Gradient, Probe
from fedpace.core import Perturbation

from .helpers import Bench, Recorder, mean_gradient, normed, plain, shard

WIDE = Perturbation(rho=0.05)


@pytest.mark.parametrize("make", [plain, normed])
@pytest.mark.parametrize("path", [(), (11,), (11, 12)])
def test_is_the_gradient_of_one_batch_at_the_point(make, path):
    bench, data = Bench(make()), shard(40)
    update = bench.run(Probe(perturbation=WIDE, path=path, batch=8), data)
    batch = next(Gradient(batch=8).batches(data, bench.context()))
    point = WIDE.follow(bench.vector, bench.model.layout, path)
    torch.testing.assert_close(update.vector, -mean_gradient(bench.at(point), [batch]), rtol=0, atol=1e-6)
    assert update.buffers is None
    assert torch.equal(point, bench.vector) == (path == ())


def test_every_path_of_a_round_sees_the_same_batch():
    bench, recorder = Bench(plain()), Recorder(shard(40))
    for path in [(), (1,), (2,), (1, 2)]:
        bench.run(Probe(perturbation=WIDE, path=path, batch=8), recorder)
    assert len(recorder.asked) == 4
    assert recorder.asked == recorder.asked[:1] * 4
    bench.run(Probe(batch=8), recorder, seed=8)
    assert recorder.asked[-1] != recorder.asked[0]  # another round, another batch


def test_gradients_differ_from_path_to_path():
    bench, data = Bench(plain()), shard()
    rows = [bench.run(Probe(perturbation=WIDE, path=path), data).vector for path in [(), (1,), (2,), (2, 1)]]
    assert all(not torch.equal(rows[i], rows[j]) for i in range(4) for j in range(i))


def test_a_whole_round_of_probes_leaves_no_statistics_behind():
    """The K + 1 passes over one batch would otherwise pile up in the running mean of the next task."""
    bench, data = Bench(normed()), shard()
    before = bench.buffers.clone()
    for k in range(9):
        bench.run(Probe(perturbation=WIDE, path=(k,)), data)
    assert torch.equal(bench.buffers.floats, before.floats)
    assert torch.equal(bench.buffers.integers, before.integers)
    bench.model.load(bench.vector, bench.buffers)
    assert torch.equal(bench.model.buffers.floats, before.floats)


def test_a_client_with_few_examples_is_probed_on_all_of_them():
    recorder = Recorder(shard(5))
    Bench(plain()).run(Probe(batch=32), recorder)
    assert [sorted(batch) for batch in recorder.asked] == [[0, 1, 2, 3, 4]]
