import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from fedpace.core import ConfigError, DataError
from fedpace.data import Characters, load
from fedpace.data.sources._text import cut

NOVEL = "It was the best of times, it was the worst of times.\n"


@pytest.fixture
def write(tmp_path):
    def written(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


@given(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.integers(2, 7))
def test_every_token_but_the_first_is_predicted_once(sizes, length):
    texts = [np.arange(size) + 100 * number for number, size in enumerate(sizes)]
    inputs, targets, owners = cut(texts, length)
    assert targets.flat.tolist() == [token for text in texts for token in text[1:]]
    for given_row, wanted, owner in zip(inputs, targets, owners, strict=True):
        assert 1 <= len(given_row) <= length
        assert wanted.tolist() == (given_row + 1).tolist()  # the token after it
        assert set(wanted // 100) == {owner}
    for owner in set(owners):
        assert (inputs.lengths[owners == owner][:-1] == length).all()  # only the last is shorter


def test_a_novel_is_cut_into_windows(write):
    path = write("novel.txt", "\ufeff" + NOVEL.replace("\n", "\r\n"))
    data = load(path, length=10)
    assert repr(data).startswith("Data('novel': 6 training examples, no test set, ")
    assert data.train.inputs.lengths.tolist() == [10, 10, 10, 10, 10, 2]
    characters = Characters(data.train.vocabulary)
    assert characters.decode(data.train.inputs.flat) == NOVEL[:-1]
    assert characters.decode(data.train.targets.flat) == NOVEL[1:]
    assert data.train.outputs == len(data.train.vocabulary) == len(set(NOVEL)) + 2


def test_a_novel_is_dealt_and_a_part_of_it_held_out(write):
    write("novel.txt", NOVEL * 10)
    federation = load("novel.txt", length=8).partition("iid", clients=3)
    assert sum(map(len, federation.clients)) + len(federation.test) == 67
    assert len(federation.test) == 13
    assert federation.shape == (8,)
    batch = federation.clients[0].batch(slice(4), padding=-100)
    assert batch.inputs.shape == batch.targets.shape


def as_csv(texts, authors):
    quoted = (f'"{text}",{author}' for text, author in zip(texts, authors, strict=True))
    return "review,author\n" + "\n".join(quoted) + "\n"


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_rows_of_a_table_are_texts_of_their_authors(write, tmp_path, kind):
    texts, authors = ["one\nline, two", "x" * 2_000_000, "1234567", ""], ["1", "2", "1", "1"]
    path = tmp_path / f"reviews.{kind}"
    if kind == "csv":
        write(path.name, as_csv(texts, authors))
    else:
        pq.write_table(pa.table({"review": [*texts[:3], None], "author": [1, 2, 1, 1]}), path)
    data = load("text", path=path, column="review", by="author", length=1_000)
    assert data.train.columns["author"].names == ("1", "2")
    federation = data.partition("by", column="author")
    assert federation.client_names == ("1", "2")
    assert [len(client) for client in federation.clients] == [2, 1_600]
    first = data.train.inputs[np.array([0])].flat
    assert Characters(data.train.vocabulary).decode(first) == "one\nline, tw"


def test_a_tokenizer_of_the_library_makes_the_tokens(write, tmp_path):
    words = {word: number for number, word in enumerate(["?", "it", "was", "the", "best"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "words.json"))
    data = load(write("novel.txt", "it was the best it was"), tokenizer="words.json", length=4)
    assert data.train.vocabulary == tuple(words)
    assert [row.tolist() for row in data.train.inputs] == [[1, 2, 3, 4], [1]]


def test_a_list_of_texts_is_loaded_with_each_text_a_possible_client():
    federation = load(["hello world", "good bye"], length=4).partition("by", column="text", test_share=0.3)
    assert federation.client_names == ("0", "1")
    assert [len(client) for client in federation.clients] == [2, 1]


def test_texts_with_labels_become_characters_with_classes():
    federation = load((["good", "bad one", "fine"], ["+", "-", "+"]), test=(["poor"], ["-"])).partition(
        "iid", clients=1
    )
    assert (federation.outputs, federation.classes) == (2, ("+", "-"))
    inputs, labels = federation.clients[0].batch(slice(None))
    characters = Characters(federation.test.pool.vocabulary)
    assert inputs.shape == (3, 7)
    read = {characters.decode(row.numpy()): int(label) for row, label in zip(inputs, labels, strict=True)}
    assert read == {"good": 0, "bad one": 1, "fine": 0}
    assert characters.decode(federation.test.batch(slice(None)).inputs[0].numpy()) == "poor"


@pytest.mark.parametrize(
    ("name", "content", "parameters", "error", "message"),
    [
        ("novel.txt", "", {}, DataError, "data 'novel': expected a text of 2 tokens or more, found an empty one"),
        ("novel.txt", "a", {}, DataError, "data 'novel': expected a text of 2 tokens or more, found 1"),
        ("novel.txt", NOVEL, {"length": 1}, ConfigError, "length: input should be greater than or equal to 2, found 1"),
        ("novel.txt", NOVEL, {"column": "text"}, DataError, "expected a table (.csv or .parquet) with a column 'text'"),
        ("novel.txt", b"\xff\xfea", {}, DataError, "expected a text in UTF-8, but it cannot be read (byte 0 is none"),
        ("novel.txt", NOVEL, {"tokenizer": "charcters"}, DataError, "did you mean 'characters'?"),
        ("none.txt", None, {}, DataError, "none.txt: expected a text in UTF-8, but it cannot be read (No such file"),
        ("some.csv", "txt,by\nab,1\n", {}, DataError, "some.csv: unknown column 'text'; did you mean 'txt'?"),
        ("some.csv", "text,who\nab,1\n", {"by": "whom"}, DataError, "unknown column 'whom'; did you mean 'who'?"),
        (
            "some.csv",
            "text,who\nab,1\ncd,\n",
            {"by": "who"},
            DataError,
            "each row of column 'who', found none in row 1",
        ),
        ("some.csv", "text,who\n", {"by": "who"}, DataError, "data 'some': expected a text of 2 tokens or more"),
        ("some.csv", "", {}, DataError, "some.csv: expected a table with texts, but it cannot be read (Empty CSV file"),
        ("some.parquet", "PAR1", {}, DataError, "some.parquet: expected a table with texts, but it cannot be read"),
    ],
)
def test_what_cannot_be_used_is_one_line(write, tmp_path, name, content, parameters, error, message):
    path = tmp_path / name if content is None else write(name, content)
    with pytest.raises(error) as caught:
        load("text", path=path, **parameters)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "parameters", "error", "message"),
    [
        ("none.txt", {}, DataError, "none.txt: no such file or folder"),
        (["hello"], {"lenght": 3}, ConfigError, "unknown key 'lenght'; did you mean 'length'?"),
        ([""], {}, DataError, "data 'texts': expected a text of 2 tokens or more, found an empty one"),
        ((["good", ""], [0, 1]), {}, DataError, "texts: expected one character or more in each, found none in text 1"),
    ],
)
def test_what_cannot_be_loaded_is_one_line(source, parameters, error, message):
    with pytest.raises(error) as caught:
        load(source, **parameters)
    assert message in str(caught.value)
