"""Text as numbers and back. One kind of tokenizer per file."""

from fedpace.data.tokenizers._tokenizer import Tokenizer
from fedpace.data.tokenizers.characters import Characters
from fedpace.data.tokenizers.pretrained import Pretrained

__all__ = ["Characters", "Pretrained", "Tokenizer"]
