import pytest
import torch
from torch import nn

from fedpace.core import ConfigError, ModelError
from fedpace.models import SmallCNN, build, check_model
from fedpace.tasks import NextToken


def vector(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def own_factory(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes))


class Fixed(nn.Module):
    def __init__(self, outputs=10):
        super().__init__()
        self.layer = nn.Linear(64, outputs)

    def forward(self, x):
        return self.layer(x.flatten(1))


class Says(nn.Module):
    """Gives what it was told to, or raises it."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, x):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Pair(nn.Module):
    """Two inputs by name, of which one is a row of tokens."""

    def __init__(self, shape, classes):
        super().__init__()
        self.token = nn.Embedding(5, 4)
        self.head = nn.Linear(4 + shape["table"][0], classes)

    def forward(self, table, text):
        return self.head(torch.cat([table, self.token(text).mean(1)], dim=1))


SHAPES = {"table": (3,), "text": (6,)}
PAIR = {"table": torch.zeros(4, 3), "text": torch.zeros(4, 6, dtype=torch.int64)}


@pytest.mark.parametrize("model", ["linear", f"{__name__}:own_factory", own_factory, f"{__name__}:Fixed", Fixed])
def test_names_paths_and_factories(model):
    one, two, other = (build(model, (1, 8, 8), 10, seed) for seed in (1, 1, 2))
    assert torch.equal(vector(one), vector(two))
    assert not torch.equal(vector(one), vector(other))


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    build("small_cnn", (1, 8, 8), 10, seed=0)
    assert torch.equal(torch.get_rng_state(), before)


def test_weights_do_not_depend_on_the_global_generator():
    torch.manual_seed(1)
    one = build("linear", (3,), 2, seed=0)
    torch.manual_seed(2)
    assert torch.equal(vector(one), vector(build("linear", (3,), 2, seed=0)))


def test_a_module_is_copied_with_its_weights_and_mode():
    mine = Fixed().eval()
    built = build(mine, (1, 8, 8), 10, seed=0)
    assert torch.equal(vector(mine), vector(built))
    assert not built.training
    with torch.no_grad():
        built.layer.weight.zero_()
    assert mine.layer.weight.any()


def test_the_check_leaves_batch_statistics_alone():
    module = build("small_cnn", (1, 8, 8), 10, seed=0)
    fresh = SmallCNN((1, 8, 8), 10)
    assert module.training
    assert all(torch.equal(a, b) for a, b in zip(module.buffers(), fresh.buffers(), strict=True))


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        ("small_cn", ConfigError, "unknown model 'small_cn'; did you mean 'small_cnn'?"),
        ("no.such:thing", ConfigError, "model 'no.such:thing': cannot be imported"),
        (
            Fixed(7),
            ModelError,
            r"model 'Fixed' gives \(2, 7\) for 2 examples of shape \(1, 8, 8\); expected \(2, 10\): its output size",
        ),
        (nn.Linear(3, 10), ModelError, r"model 'Linear' cannot take examples of shape \(1, 8, 8\)"),
        (
            lambda shape: None,
            ModelError,
            r"expected a factory that takes \(shape, classes\) or nothing, found \(shape\)",
        ),
        (lambda: 3, ModelError, "gives a int; expected a torch.nn.Module"),
        (lambda: {}["missing"], ModelError, r"cannot be built for shape \(1, 8, 8\): KeyError: 'missing'"),
        (lambda: nn.Linear(-3, 10), ModelError, r"cannot be built for shape \(1, 8, 8\): RuntimeError: "),
        (Says((1, 2)), ModelError, "gives a tuple; expected a tensor"),
        (Says(KeyError("two\nlines")), ModelError, r"cannot take examples of shape \(1, 8, 8\): KeyError: 'two"),
    ],
)
def test_a_model_that_does_not_fit_is_one_line(model, error, message):
    with pytest.raises(error, match=message) as caught:
        build(model, (1, 8, 8), 10, seed=0)
    assert "\n" not in str(caught.value)


def test_a_model_is_tried_on_the_batch_that_is_given():
    embedding = nn.Embedding(7, 2)
    with pytest.raises(ModelError, match="cannot take"):
        build(embedding, (3,), 2, seed=0)  # zeros are floats
    tokens = torch.tensor([[1, 2, 6]])
    assert build(embedding, (3,), 2, seed=0, inputs=tokens, check=lambda outputs: None)
    with pytest.raises(ModelError, match=r"gives \(1, 3, 2\) for 1 examples of shape \(3,\); expected \(1, 2\)"):
        build(embedding, (3,), 2, seed=0, inputs=tokens)
    with pytest.raises(ModelError, match=r"gives \(1, 3, 2\) for 1 examples of shape \(3,\); too many"):
        build(embedding, (3,), 2, seed=0, inputs=tokens, check=lambda outputs: "too many")


def test_a_task_says_whether_outputs_fit():
    text, task = torch.zeros(2, 6, dtype=torch.int64), NextToken()
    build(nn.Embedding(7, 7), (6,), 7, seed=0, inputs=text, check=lambda outputs: task.check_outputs(outputs, text, 7))
    with pytest.raises(ModelError, match=r"gives \(2, 6, 8\) .*; expected outputs of shape \(2, 6, 7\)"):
        check_model("mine", nn.Embedding(7, 8), text, lambda outputs: task.check_outputs(outputs, text, 7))


def test_several_inputs_are_tried_if_they_are_given():
    assert isinstance(build(Pair, SHAPES, 2, seed=0), Pair)
    assert build(Pair, SHAPES, 2, seed=0, inputs=PAIR)(**PAIR).shape == (4, 2)
    with pytest.raises(ModelError, match=r"'Pair' cannot take examples of shapes table \(3,\): TypeError: .*'text'"):
        build(Pair, SHAPES, 2, seed=0, inputs={"table": PAIR["table"]})
    with pytest.raises(ModelError, match=r"'linear' takes one input, found shapes table \(3,\), text \(6,\)"):
        build("linear", SHAPES, 2, seed=0)


def test_lazy_layers_draw_their_weights_from_the_seed():
    before = torch.get_rng_state()
    one, two, other = (build(nn.Sequential(nn.Flatten(), nn.LazyLinear(10)), (1, 8, 8), 10, seed) for seed in (1, 1, 2))
    assert torch.equal(vector(one), vector(two))
    assert not torch.equal(vector(one), vector(other))
    assert torch.equal(torch.get_rng_state(), before)


def test_the_trial_leaves_the_mode_alone():
    module = Fixed()
    check_model("mine", module, torch.zeros(2, 64), lambda outputs: None)
    assert module.training
    check_model("mine", module.eval(), torch.zeros(2, 64), lambda outputs: None)
    assert not module.training


class Chatty(nn.Module):
    """A user's model of text, with as many rows as it is told and scores for 9 tokens."""

    def __init__(self, rows=9, places=20):
        super().__init__()
        self.token = nn.Embedding(rows, 4)
        self.place = nn.Embedding(places, 4)
        self.head = nn.Linear(4, 9)

    def forward(self, tokens):
        return self.head(self.token(tokens) + self.place(torch.arange(tokens.shape[1])))


def test_a_model_of_text_is_tried_on_tokens():
    for name in ("char_lstm", "tiny_transformer"):
        assert build(name, (6,), 9, seed=0)(torch.zeros(3, 6, dtype=torch.int64)).shape == (3, 6, 9)
    told = Chatty()
    told.takes_tokens = True
    build(told, (6,), 9, seed=0)
    with pytest.raises(
        ModelError, match=r"gives \(2, 6, 9\) .*; expected \(2, 6, 8\): a score of each of the 8 tokens"
    ):
        build(told, (6,), 8, seed=0)


def test_an_embedding_that_is_too_small_is_found_when_the_model_is_built():
    """Neither a batch nor a client need hold the largest token."""
    text = torch.zeros(2, 6, dtype=torch.int64)
    for given in ({"inputs": text, "check": lambda outputs: None}, {}):
        mine = Chatty(rows=5)
        mine.takes_tokens = not given
        with pytest.raises(
            ModelError,
            match=r"'Chatty' cannot take examples of shape \(6,\): its embedding 'token' has 5 rows, expected 9",
        ):
            build(mine, (6,), 9, seed=0, **given)
    with pytest.raises(ModelError, match=r"its embedding 'place' has 4 rows, expected 6 or more: .* place of a text"):
        build(Chatty(places=4), (6,), 9, seed=0, inputs=text, check=lambda outputs: None)


def test_the_vocabulary_of_a_classifier_of_texts_is_its_own():
    """It has 20 classes and 5 tokens; number 19 is no token."""
    model, texts = (
        nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(24, 20)),
        torch.zeros(2, 6, dtype=torch.int64),
    )
    assert build(model, (6,), 20, seed=0, inputs=texts)(texts).shape == (2, 20)


def test_the_trial_leaves_no_hooks():
    module = Chatty()
    check_model("mine", module, torch.zeros(2, 6, dtype=torch.int64), lambda outputs: None)
    assert not any(part._forward_pre_hooks for part in module.modules())


@pytest.mark.parametrize(
    ("name", "shape", "inputs", "message"),
    [
        ("char_lstm", (6,), torch.zeros(2, 6), "model 'char_lstm' takes tokens, found numbers"),
        ("mlp", (6,), torch.zeros(2, 6, dtype=torch.int64), "model 'mlp' takes numbers, found tokens"),
        ("char_lstm", (1, 8, 8), None, r"'char_lstm': expected texts of shape \(tokens,\), found shape \(1, 8, 8\)"),
        ("tiny_transformer", (), None, r"'tiny_transformer': expected texts of shape \(tokens,\), found shape \(\)"),
    ],
)
def test_models_of_text_and_of_numbers_are_not_mixed_up(name, shape, inputs, message):
    with pytest.raises(ModelError, match=message) as caught:
        build(name, shape, 9, seed=0, inputs=inputs)
    assert "\n" not in str(caught.value)
