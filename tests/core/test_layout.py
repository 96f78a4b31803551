import pytest
import torch
from torch import nn

from fedpace.core import Layout, ModelError


class Scaled(nn.Module):
    """A parameter without dimensions between two ordinary ones."""

    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(2, 3, 2)
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.head = nn.Linear(3, 2)


@pytest.fixture
def layout():
    return Layout.of(Scaled())


def test_order_and_shapes_are_those_of_the_module(layout):
    module = Scaled()
    assert layout.names == tuple(name for name, _ in module.named_parameters())
    assert layout.shapes == tuple(tuple(p.shape) for p in module.parameters())
    assert layout.size == sum(p.numel() for p in module.parameters())


def test_slices_tile_the_vector(layout):
    covered = [i for part in layout.slices.values() for i in range(part.start, part.stop)]
    assert covered == list(range(layout.size))
    assert layout.slices["scale"] == slice(0, 1)
    assert layout.slices["head.bias"] == slice(layout.size - 2, layout.size)


def test_tensors_are_views_in_their_shapes(layout):
    vector = torch.arange(float(layout.size))
    found = dict(layout.tensors(vector))
    assert {name: tuple(t.shape) for name, t in found.items()} == dict(zip(layout.names, layout.shapes, strict=True))
    found["head.weight"][1, 2] = -1.0
    assert vector[layout.slices["head.weight"]].tolist()[-1] == -1.0


def test_frozen_parameters_have_no_place():
    module = Scaled()
    module.body.requires_grad_(False)
    assert Layout.of(module).names == ("scale", "head.weight", "head.bias")


def test_tied_parameters_are_counted_once():
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    module[1].weight = module[0].weight
    assert Layout.of(module).size == 4


def test_complex_parameters_are_refused():
    with pytest.raises(ModelError, match="parameter 'weight': expected real numbers, found complex ones"):
        Layout.of(nn.Linear(2, 2, dtype=torch.complex64))


def test_all_is_shared_by_default(layout):
    vector = torch.arange(float(layout.size))
    assert layout.personal == frozenset()
    assert layout.shared == layout
    assert torch.equal(layout.take_shared(vector), vector)


def test_personal_part_stays_where_it_is(layout):
    personal = layout.with_personal(lambda name: name.startswith("body"))
    assert personal.personal == {"body.weight", "body.bias"}
    assert personal.shared.names == ("scale", "head.weight", "head.bias")
    assert personal.size == layout.size  # the whole vector is as long as before
    mine, theirs = torch.arange(float(layout.size)), -torch.arange(float(layout.size))
    sent = personal.take_shared(theirs)
    assert len(sent) == personal.shared.size
    personal.put_shared(mine, sent)
    for name, part in layout.slices.items():
        expected = torch.arange(float(layout.size))[part] * (1 if name in personal.personal else -1)
        assert torch.equal(mine[part], expected), name


def test_what_is_taken_is_a_copy(layout):
    personal = layout.with_personal(lambda name: name == "head.weight")  # in the middle: what is left is not one slice
    vector = torch.arange(float(layout.size))
    personal.take_shared(vector).zero_()
    assert torch.equal(vector, torch.arange(float(layout.size)))


def test_take_undoes_put(layout):
    personal = layout.with_personal(lambda name: name == "head.weight")
    vector, sent = torch.zeros(layout.size), torch.arange(1.0, personal.shared.size + 1)
    personal.put_shared(vector, sent)
    assert torch.equal(personal.take_shared(vector), sent)
    assert (vector[layout.slices["head.weight"]] == 0).all()


def test_everything_may_be_personal(layout):
    local = layout.with_personal(lambda name: True)
    vector = torch.ones(layout.size)
    assert local.shared.size == 0
    assert local.take_shared(vector).shape == (0,)
    local.put_shared(vector, torch.empty(0))
    assert torch.equal(vector, torch.ones(layout.size))


def test_where_marks_whole_tensors(layout):
    matrices = layout.where(lambda name, shape: len(shape) > 1)
    assert matrices.dtype == torch.bool
    assert int(matrices.sum()) == 24 + 6
    assert matrices[layout.slices["body.weight"]].all()
    assert not matrices[layout.slices["body.bias"]].any()
    assert torch.equal(layout.where(lambda name, _: name == "scale").nonzero().flatten(), torch.tensor([0]))
