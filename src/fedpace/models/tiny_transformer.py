"""The causal transformer for text."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedpace.core import ModelError
from fedpace.models._model import Size, check_text, models


@models.register("tiny_transformer")
class TinyTransformer(nn.Module):
    """A causal transformer with pre-LayerNorm blocks: a score of every token at every place (Radford et al., 2019).

    ``classes`` is the size of the vocabulary. Places have learnt embeddings: no text may be longer than ``context``.
    ``tied`` lets the output layer share its matrix with the embedding of tokens. No dropout.

    >>> sum(p.numel() for p in TinyTransformer((80,), 90).parameters())
    127578
    """

    takes_tokens: ClassVar[bool] = True

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        width: Size = 64,
        heads: Size = 4,
        layers: Size = 2,
        context: Size = 256,
        tied: bool = False,
    ) -> None:
        super().__init__()
        check_text("tiny_transformer", shape)
        if shape[0] > context:
            raise ModelError(
                f"model 'tiny_transformer': expected texts of at most {context} tokens, found {shape[0]}; "
                "cut the texts or set context"
            )
        if width % heads:
            raise ModelError(
                f"model 'tiny_transformer': expected a width that its {heads} heads can share, found {width}"
            )
        self.token = nn.Embedding(classes, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(_Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)
        for embedding in (self.token, self.position):
            nn.init.normal_(embedding.weight, std=0.02)  # GPT-2's; torch's 1 is too wide for a matrix that makes scores
        if tied:
            self.head.weight = self.token.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the next token: batch × time × vocabulary."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        states = self.blocks(self.token(tokens) + self.position(places))
        scores: Tensor = self.head(self.norm(states))
        return scores


class _Block(nn.Module):
    """Attention and then a network of two layers, each added to what it was given."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width), _Attention(width, heads))
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, states: Tensor) -> Tensor:
        attended = states + self.attention(states)
        changed: Tensor = attended + self.mlp(attended)
        return changed


class _Attention(nn.Module):
    """Each place looks at itself and what is before it.

    The projections are layers with names of their own, where adapters find them. They have no bias: a key's would
    change nothing.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        split = (part(states).unflatten(2, (self.heads, -1)) for part in (self.query, self.key, self.value))
        query, key, value = (part.transpose(1, 2) for part in split)  # batch × heads × time × width of a head
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        mixed: Tensor = self.output(seen.transpose(1, 2).flatten(2))
        return mixed
