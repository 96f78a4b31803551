import builtins
from copy import deepcopy

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from torch import nn

from fedpace.core import ConfigError, FlatModule, Layout, ModelError
from fedpace.models import MLP, Adapter, TinyTransformer, adapted, build, head_names, head_part
from fedpace.tasks import NextToken

SHAPE, VOCABULARY = (8,), 11
TEXT = {"name": "tiny_transformer", "width": 16}


def with_adapter(seed=0, **adapter):
    return build({**TEXT, "adapter": adapter}, SHAPE, VOCABULARY, seed)


def tokens(seed=0):
    return torch.randint(VOCABULARY, (3, *SHAPE), generator=torch.Generator().manual_seed(seed))


def step(flat):
    NextToken().loss(flat.module(tokens()), tokens(1)).backward()
    flat.vector.sub_(flat.gradient)
    flat.gradient.zero_()


def layers(module):
    """The layers that have adapters."""
    return {name.partition(".lora_")[0] for name in Layout.of(module).names}


class Torchs(nn.Module):
    """Made of torch's own layers."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(8, VOCABULARY)

    def forward(self, states):
        return self.head(self.encoder(states[:, None]).mean(1))


def test_only_adapters_travel():
    flat = FlatModule(with_adapter())
    assert all(".lora_" in name for name in flat.layout.names)
    assert layers(flat.module) == {
        f"blocks.{block}.attention.1.{part}" for block in (0, 1) for part in ("query", "value")
    }
    assert flat.vector.numel() == 2 * 2 * 2 * 16 * 4  # blocks, layers, matrices, width, rank
    assert FlatModule(with_adapter(rank=2)).vector.numel() == flat.vector.numel() / 2


def test_adapters_begin_without_effect():
    base = build(TEXT, SHAPE, VOCABULARY, seed=0)
    assert torch.equal(with_adapter()(tokens()), base(tokens()))


def test_adapters_are_drawn_from_the_seed():
    before = torch.get_rng_state()
    one, two, other = (FlatModule(with_adapter(seed)).vector for seed in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_step_changes_adapters_only():
    flat = FlatModule(with_adapter())
    before, scores = flat.state_dict(), flat.module(tokens())
    step(flat)
    step(flat)  # the first leaves A alone, because B is zero
    after = flat.state_dict()
    assert {name for name in before if not torch.equal(before[name], after[name])} == set(flat.layout.names)
    assert not torch.allclose(flat.module(tokens()), scores, atol=1e-6)


def test_alpha_scales_what_adapters_do():
    outputs = {}
    for alpha in (8, 16):
        flat = FlatModule(with_adapter(alpha=alpha, targets=["output"]))
        generator = torch.Generator().manual_seed(0)
        flat.vector.copy_(0.01 * torch.randn(flat.layout.size, generator=generator))
        last = flat.module.blocks[1].attention[1].output
        states = torch.randn(2, 16, generator=generator)
        outputs[alpha] = last(states) - last.base_layer(states)
    torch.testing.assert_close(outputs[16], 2 * outputs[8])


def test_the_head_may_be_trained_beside_them():
    module = with_adapter(train_head=True)
    assert {name for name in Layout.of(module).names if ".lora_" not in name} == {"head.weight", "head.bias"}
    tied = adapted(TinyTransformer(SHAPE, VOCABULARY, tied=True), Adapter(train_head=True))
    assert {name for name in Layout.of(tied).names if ".lora_" not in name} == {"token.weight", "head.bias"}


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (["key"], {"blocks.0.attention.1.key", "blocks.1.attention.1.key"}),
        (["blocks.1.mlp.1", "head"], {"blocks.1.mlp.1", "head"}),
        (["token"], {"token"}),
    ],
)
def test_targets_are_whole_names_or_their_last_parts(targets, expected):
    module = with_adapter(targets=targets)
    assert {name.removesuffix(".lora_embedding_A") for name in layers(module)} == expected
    assert head_part(module) == "head"


def test_without_attention_all_linear_layers_but_the_head_are_adapted():
    module = adapted(MLP((5,), 3), Adapter())
    assert layers(module) == {"features.1", "features.4"}
    assert head_names(module) == ("head.weight", "head.bias")


def test_a_layer_whose_name_ends_like_another_is_left_alone():
    module = adapted(nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 2))), Adapter())
    assert layers(module) == {"0"}


def test_the_head_that_is_named_is_left_alone():
    model = {"name": f"{__name__}:Two", "head": "classifier", "adapter": {}}
    module = build(model, SHAPE, 2, seed=0)
    assert layers(module) == {"features", "other"}
    assert head_names(module) == ("classifier.weight", "classifier.bias")


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.classifier, self.other = nn.Linear(8, 4), nn.Linear(4, 2), nn.Linear(4, 4)

    def forward(self, rows):
        return self.classifier(self.other(self.features(rows)))


@pytest.mark.parametrize(
    ("model", "adapter", "message"),
    [
        ("char_lstm", {}, "model 'CharLSTM': adapter: expected linear layers .* beside the head, found none"),
        (TEXT, {"targets": ["qery"]}, r"adapter: expected layers .* found no 'qery'; did you mean 'query'\?"),
        (TEXT, {"targets": ["blocks.0.mpl.1"]}, r"found no 'blocks.0.mpl.1'; did you mean 'blocks.0.mlp.1'\?"),
        (TEXT, {"targets": ["norm"]}, r"model 'TinyTransformer': adapter: .*LayerNorm.* is not supported"),
        ({"name": "mlp", "head": "haed"}, {}, r"found none named 'haed'; did you mean 'head'\?"),
    ],
)
def test_what_cannot_be_adapted_is_one_line(model, adapter, message):
    table = {"name": model} if isinstance(model, str) else model
    with pytest.raises(ModelError, match=message) as caught:
        build({**table, "adapter": adapter}, SHAPE, VOCABULARY, seed=0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("targets", [(), ("linear1",), ("out_proj",)])
def test_layers_whose_weights_torch_reads_itself_are_refused(targets):
    """In evaluation nn.TransformerEncoderLayer would answer as if it had no adapters."""
    with pytest.raises(ModelError, match=r"\(not inside of nn.TransformerEncoderLayer or nn.MultiheadAttention\)"):
        adapted(Torchs(), Adapter(targets=targets))
    assert layers(adapted(Torchs(), Adapter(targets=("head",)))) == {"head"}


def test_a_missing_package_is_one_line(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name == "peft":
            raise ImportError(name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"adapter: peft is not installed; pip install 'fedpace\[llm\]'"):
        adapted(MLP((5,), 3), Adapter())


def test_adapters_may_be_put_into_a_model_that_was_trained_without(tmp_path):
    base = build(TEXT, SHAPE, VOCABULARY, seed=7)
    save_file(FlatModule(base).state_dict(), tmp_path / "model.safetensors")
    found = build({**TEXT, "weights": str(tmp_path), "adapter": {}}, SHAPE, VOCABULARY, seed=0)
    assert torch.equal(found(tokens()), base(tokens()))
    assert torch.equal(FlatModule(found).vector, FlatModule(with_adapter(seed=0)).vector)


def test_a_model_that_was_trained_with_adapters_may_go_on(tmp_path):
    flat = FlatModule(with_adapter(seed=7))
    step(flat)
    save_file(flat.state_dict(), tmp_path / "model.safetensors")
    table = {**TEXT, "weights": str(tmp_path)}
    found = build({**table, "adapter": {}}, SHAPE, VOCABULARY, seed=0)
    assert torch.equal(FlatModule(found).vector, flat.vector)
    assert torch.equal(found(tokens()), flat.module(tokens()))
    with pytest.raises(ModelError, match=r"query.lora_A.default.weight'.*expected shape \(2, 16\), found \(4, 16\)"):
        build({**table, "adapter": {"rank": 2}}, SHAPE, VOCABULARY, seed=0)
    with pytest.raises(
        ModelError, match=r"expected 'blocks.0.attention.1.query.weight' .* did you mean '.*base_layer.weight"
    ):
        build(table, SHAPE, VOCABULARY, seed=0)


def test_an_adapted_model_can_be_copied():
    flat = FlatModule(with_adapter())
    twin = deepcopy(flat)
    step(flat)
    assert not torch.equal(twin.vector, flat.vector)
    step(twin)
    assert torch.equal(twin.vector, flat.vector)


def test_a_users_own_peft_model_works():
    """As a module it is copied, tried and trained like any other."""
    torch.manual_seed(0)
    mine = get_peft_model(TinyTransformer(SHAPE, VOCABULARY, width=16), LoraConfig(r=2, target_modules=["query"]))
    flat = FlatModule(build(mine, SHAPE, VOCABULARY, seed=0))
    assert flat.vector.numel() == 2 * 2 * 16 * 2
    before = flat.state_dict()
    assert torch.equal(flat.module(tokens()), mine(tokens()))
    step(flat)
    step(flat)
    assert {name for name, tensor in flat.state_dict().items() if not torch.equal(tensor, before[name])} == set(
        flat.layout.names
    )
    assert torch.equal(mine.state_dict()[flat.layout.names[0]], before[flat.layout.names[0]])
    assert head_names(flat.module) == ("base_model.model.head.weight", "base_model.model.head.bias")
    with pytest.raises(ModelError, match=r"its embedding 'base_model.model\.token' has 11 rows, expected 12"):
        build(mine, SHAPE, 12, seed=0, inputs=torch.full((1, 8), 11), check=lambda outputs: None)
