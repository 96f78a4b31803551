import os
import pickle
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.func import functional_call

from fedpace.core import FlatModule, ModelError
from fedpace.models import CharLSTM, TinyTransformer, build, head_names, models
from fedpace.tasks import NextToken

VOCABULARY = 11
TEXTS = [name for name in models.names() if getattr(models.get(name), "takes_tokens", False)]
TABLES = [
    *({"name": name} for name in TEXTS),
    {"name": "tiny_transformer", "tied": True},
    {"name": "char_lstm", "layers": 2},
]


def built(table, seed=0):
    return build(table, (8,), VOCABULARY, seed)


def tokens(texts=3, length=8, seed=0):
    return torch.randint(VOCABULARY, (texts, length), generator=torch.Generator().manual_seed(seed))


def step(flat, lr=0.5):
    """One step on the next token; returns the scores before it."""
    scores = flat.module(tokens())
    NextToken().loss(scores, tokens(seed=1)).backward()
    flat.vector.sub_(lr * flat.gradient)
    return scores.detach()


def test_models_of_text():
    assert TEXTS == ["char_lstm", "tiny_transformer"]


@pytest.mark.parametrize(
    ("model", "options", "size"),
    [
        (CharLSTM, {}, 87_802),
        (CharLSTM, {"embedding": 8, "hidden": 256, "layers": 2}, 822_570),
        (TinyTransformer, {}, 127_578),
        (TinyTransformer, {"tied": True}, 127_578 - 64 * 90),
        (TinyTransformer, {"context": 80, "layers": 1}, 127_578 - 64 * 176 - 49_728),
    ],
)
def test_number_of_parameters(model, options, size):
    assert sum(p.numel() for p in model((80,), 90, **options).parameters()) == size


@pytest.mark.parametrize("table", TABLES)
def test_every_parameter_has_a_gradient(table):
    module = built(table)
    NextToken().loss(module(tokens()), tokens(seed=1)).backward()
    assert all(p.grad.abs().max() > 1e-7 for p in module.parameters())


@pytest.mark.parametrize("table", TABLES)
def test_a_later_token_changes_no_earlier_score(table):
    module, text = built(table).eval(), tokens()
    other = text.clone()
    other[:, 5] = (other[:, 5] + 1) % VOCABULARY
    before, after = module(text), module(other)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert ((before[:, 5:] - after[:, 5:]).abs().amax(2) > 1e-6).all()  # and every later one: it is remembered


@pytest.mark.parametrize("table", TABLES)
def test_texts_do_not_see_each_other_and_may_be_shorter(table):
    module, text = built(table).eval(), tokens()
    torch.testing.assert_close(module(text)[1:2], module(text[1:2]))
    torch.testing.assert_close(module(text)[:, :3], module(text[:, :3]))


def test_places_of_a_text_differ():
    with torch.no_grad():
        scores = built("tiny_transformer")(torch.zeros(1, 8, dtype=torch.int64))
    assert (scores[0, 0] - scores[0, 1]).abs().max() > 1e-4


@pytest.mark.parametrize("table", TABLES)
def test_the_head_is_the_last_layer(table):
    expected = ("token.weight", "head.bias") if table.get("tied") else ("head.weight", "head.bias")
    assert head_names(built(table)) == expected


def test_tied_layers_stay_tied():
    module = built({"name": "tiny_transformer", "tied": True})
    assert module.head.weight is module.token.weight
    flat = FlatModule(module)
    step(flat)
    assert flat.module.head.weight is flat.module.token.weight
    twin = deepcopy(module)
    assert twin.head.weight is twin.token.weight


def test_the_transformer_refuses_what_it_cannot_be():
    TinyTransformer((256,), 5)
    with pytest.raises(
        ModelError, match="expected texts of at most 256 tokens, found 257; cut the texts or set context"
    ):
        TinyTransformer((257,), 5)
    TinyTransformer((257,), 5, context=257)
    with pytest.raises(ModelError, match="expected a width that its 4 heads can share, found 6"):
        TinyTransformer((8,), 5, width=6)


def test_attention_has_layers_with_names():
    linear = {
        name.rpartition(".")[2] for name, part in built("tiny_transformer").named_modules() if type(part) is nn.Linear
    }
    assert {"query", "key", "value", "output"} < linear


@pytest.mark.parametrize("table", TABLES)
def test_a_flat_vector_is_the_model(table):
    """An LSTM keeps a list of its weights beside its parameters, which must go on being the same."""
    plain, flat = built(table), FlatModule(built(table))
    text = tokens()
    torch.testing.assert_close(flat.module(text), plain(text), rtol=0, atol=0)
    before = step(flat)
    assert all(part.any() for _, part in flat.layout.tensors(flat.gradient))
    NextToken().loss(plain(text), tokens(seed=1)).backward()
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter -= 0.5 * parameter.grad
    torch.testing.assert_close(flat.module(text), plain(text))
    assert not torch.allclose(flat.module(text), before, atol=1e-3)
    with torch.no_grad():
        flat.vector.zero_()
        assert not flat.module.eval()(text).any()


@pytest.mark.parametrize(
    "copied", [deepcopy, lambda flat: pickle.loads(pickle.dumps(flat))], ids=["deepcopy", "pickle"]
)
@pytest.mark.parametrize("table", TABLES)
def test_a_copy_of_a_flat_model_is_a_model_of_its_own(table, copied):
    flat = FlatModule(built(table))
    twin = copied(flat)
    scores = step(flat)
    assert torch.equal(step(twin), scores)
    assert torch.equal(twin.vector, flat.vector)
    assert torch.equal(twin.module(tokens()), flat.module(tokens()))
    with torch.no_grad():
        twin.vector.zero_()
    assert not twin.module(tokens()).any()
    assert flat.module(tokens()).any()


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize("table", TABLES)
def test_training_goes_on_after_a_fork(table):
    flat = FlatModule(built(table))
    step(flat)
    flat.gradient.zero_()
    shared = flat.vector.clone().share_memory_()
    if not (child := os.fork()):
        try:
            torch.set_num_threads(1)
            step(flat)
            shared.copy_(flat.vector)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert not torch.equal(shared, flat.vector)
    step(flat)
    torch.testing.assert_close(shared, flat.vector)


@pytest.mark.parametrize("table", TABLES)
def test_other_tensors_may_stand_in_for_parameters(table):
    """As personalised methods do; an LSTM must look at them and not at its list."""
    module = built(table)
    zeros = {name: torch.zeros_like(parameter) for name, parameter in module.named_parameters()}
    before = module(tokens())
    assert not functional_call(module, zeros, (tokens(),)).any()
    assert torch.equal(module(tokens()), before)


@pytest.mark.parametrize("table", TABLES)
def test_a_state_can_be_given_to_another(table):
    one, other = built(table), built(table, seed=1)
    assert not torch.equal(one(tokens()), other(tokens()))
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(tokens()), other(tokens()))
