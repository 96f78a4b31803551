"""The recurrent network for text."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from fedpace.models._model import Size, check_text, models


@models.register("char_lstm")
class CharLSTM(nn.Module):
    """An embedding, an LSTM and a linear layer: a score of every token at every place (McMahan et al., 2017).

    ``classes`` is the size of the vocabulary. Their network for Shakespeare's characters has ``embedding = 8``,
    ``hidden = 256`` and ``layers = 2``. Texts may have any length.

    >>> sum(p.numel() for p in CharLSTM((80,), 90).parameters())
    87802
    """

    takes_tokens: ClassVar[bool] = True

    def __init__(
        self, shape: tuple[int, ...], classes: int, embedding: Size = 16, hidden: Size = 128, layers: Size = 1
    ) -> None:
        super().__init__()
        check_text("char_lstm", shape)
        self.token = nn.Embedding(classes, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the next token: batch × time × vocabulary."""
        states, _ = self.lstm(self.token(tokens))
        scores: Tensor = self.head(states)
        return scores
