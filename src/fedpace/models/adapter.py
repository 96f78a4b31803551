"""Adapters: a few new weights beside those of a model, which stay as they are."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field
from torch import nn

from fedpace.core import ConfigError, ModelError, Settings, did_you_mean
from fedpace.models._head import HEAD, head_names, head_part

_ATTENTION = {"query", "value", "q_proj", "v_proj", "q_lin", "v_lin", "query_key_value", "qkv_proj", "c_attn"}
"""What models call the projections to queries and values, which Hu et al. (2022) adapt."""

_FUSED = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
"""These read the weights of their layers without calling them, so that adapters there would do nothing."""

_LAYERS = "layers (not inside of nn.TransformerEncoderLayer or nn.MultiheadAttention)"


class Adapter(Settings):
    """LoRA (Hu et al., 2022): a layer W becomes W + alpha/rank · B A, and only A and B are trained and travel.

    ``targets`` name the layers, as a whole or by the last part of their names. By default they are the linear layers
    that make queries and values, or, where none has such a name, all linear layers but the head. ``train_head`` lets
    the head be trained as well. Needs the extra ``llm``.
    """

    rank: int = Field(4, ge=1)
    alpha: float = Field(8.0, gt=0, allow_inf_nan=False)
    targets: tuple[str, ...] = ()
    train_head: bool = False


def adapted(module: nn.Module, adapter: Adapter) -> nn.Module:
    """The same module with adapters, of which only these are trainable; they change no output until they are trained.

    Its head goes by the name that it had.

    >>> from fedpace.core import Layout
    >>> from fedpace.models import TinyTransformer
    >>> Layout.of(adapted(TinyTransformer((8,), classes=10), Adapter(rank=2))).size  # 2 blocks · 2 layers · 2 · 64 · 2
    1024
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise ConfigError(f"adapter: {error.name} is not installed; pip install 'fedpace[llm]'") from None
    head = head_part(module)
    pattern = "|".join(map(re.escape, _targets(module, adapter, head)))  # peft would match the ends of names
    alpha: Any = adapter.alpha  # peft declares an integer and takes any number
    lora = LoraConfig(r=adapter.rank, lora_alpha=alpha, target_modules=pattern)
    try:
        module = inject_adapter_in_model(lora, module)  # freezes everything else
    except Exception as error:  # whatever peft cannot adapt
        raise ModelError(f"model '{type(module).__name__}': adapter: {error}") from error
    if head:  # is empty if the module is but one layer
        setattr(module, HEAD, head)
    if adapter.train_head:
        parameters = dict(module.named_parameters())
        for name in head_names(module):
            parameters[name].requires_grad_(True)
    return module


def _targets(module: nn.Module, adapter: Adapter, head: str) -> list[str]:
    """Whole names of the layers that are adapted."""
    fused = [name for name, part in module.named_modules() if isinstance(part, _FUSED)]
    known = {name: part for name, part in module.named_modules() if name and not _below(name, fused)}
    model = f"model '{type(module).__name__}'"
    if adapter.targets:
        chosen = {target: [name for name in known if f".{name}".endswith(f".{target}")] for target in adapter.targets}
        for target, names in chosen.items():
            if not names:
                near = did_you_mean(target, known if "." in target else {name.rpartition(".")[2] for name in known})
                raise ModelError(f"{model}: adapter: expected {_LAYERS} as targets, found no '{target}'; {near}")
        return [name for names in chosen.values() for name in names]
    linear = [name for name, part in known.items() if isinstance(part, nn.Linear)]
    linear = [name for name in linear if name != head and not _below(name, [head])]
    if not linear:
        raise ModelError(f"{model}: adapter: expected linear {_LAYERS} beside the head, found none; name targets")
    return [name for name in linear if name.rpartition(".")[2] in _ATTENTION] or linear


def _below(name: str, parts: list[str]) -> bool:
    """Whether a module lies inside of one of these parts."""
    return any(name.startswith(f"{part}." if part else "") for part in parts)
