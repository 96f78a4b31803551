import sys

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from fedpace.core import DataError
from fedpace.data import PAD, Characters, Pretrained


def trained():
    """A small tokenizer of bytes, which cuts texts after two tokens and adds special ones unless it is told not to."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=270,
        special_tokens=["[PAD]", "[CLS]"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(["to be or not to be"] * 5, trainer)
    made.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 1)])
    made.enable_truncation(2)
    made.enable_padding(length=50)
    return made


@given(st.lists(st.text(st.characters()), min_size=1))
def test_characters_say_what_was_written(texts):
    characters = Characters.of(texts)
    again = Characters(characters.vocabulary)
    for text in texts:
        tokens = characters.encode(text)
        assert (tokens.dtype, len(tokens)) == (np.int64, len(text))
        assert again.decode(tokens) == text
        assert [characters.vocabulary[token] for token in tokens] == list(text)


def test_unknown_characters_have_a_token_of_their_own():
    characters = Characters.of(["abc"])
    assert characters.vocabulary == ("", "�", "a", "b", "c")
    assert characters.encode("a\x00é" + chr(sys.maxunicode)).tolist() == [2, 1, 1, 1]
    assert Characters.of([]).encode("ab").tolist() == [1, 1]


def test_padding_says_nothing():
    characters = Characters.of(["abc"])
    assert characters.decode(np.array([2, 3, PAD, -100])) == "ab"


def test_a_vocabulary_in_another_order_is_respected():
    characters = Characters(("", "�", "c", "a"))
    assert characters.encode("ac").tolist() == [3, 2]


@pytest.mark.parametrize("vocabulary", [("a", "b"), ("", "�", "ab"), ()])
def test_other_vocabularies_are_refused(vocabulary):
    with pytest.raises(DataError, match=r"^a vocabulary of characters: expected \('', '�'\), then single characters"):
        Characters(vocabulary)


def test_a_pretrained_tokenizer_is_an_object_or_a_file(tmp_path):
    path = tmp_path / "tokenizer.json"
    original = trained()
    original.save(str(path))
    for made in (Pretrained(path), Pretrained(str(path)), Pretrained(original)):
        tokens = made.encode("to be, or not")
        assert tokens.dtype == np.int64
        assert len(tokens) > 2
        assert made.decode(np.append(tokens, -100)) == "to be, or not"
        assert made.vocabulary[:2] == ("[PAD]", "[CLS]")
        assert len(made.vocabulary) == original.get_vocab_size()
    assert original.truncation is not None  # the user's object stays as it is


def test_numbers_that_are_free_have_no_name():
    vocabulary = {"a": 0, "b": 3}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="a"))
    assert Pretrained(made).vocabulary == ("a", "", "", "b")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "tokenizer '.*nothing.json': expected a tokenizer's JSON file, but it cannot be read .No such file"),
        (b"{}", "nothing.json: expected a tokenizer's JSON file, but it cannot be read"),
        (b"\xff\xfe\x00", "nothing.json': expected a tokenizer's JSON file, but it cannot be read .no text"),
    ],
)
def test_a_file_that_is_none_is_one_line(tmp_path, content, message):
    path = tmp_path / "nothing.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        Pretrained(path)
    assert "\n" not in str(caught.value)


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(DataError, match=r"needs the library 'tokenizers': pip install 'fedpace\[text\]'"):
        Pretrained("tokenizer.json")
