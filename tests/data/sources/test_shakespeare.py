import pytest

from fedpace.core import DataError
from fedpace.data import Characters, load

from ..helpers import on_disk

PLAY = """First Witch:
When shall we three meet again?
In thunder, lightning, or in rain?

LADY  MACBETH:
Out, damned spot!


First Witch:
Where the place?

Ghost of BANQUO:

LADY MACBETH:
What's done is done:
to bed.
"""


@pytest.fixture
def play(tmp_path):
    path = tmp_path / "data" / "shakespeare" / "input.txt"
    path.parent.mkdir(parents=True)
    path.write_text(PLAY)
    return path


def said(data, role):
    column = data.train.column("role")
    own = data.train.take(column.values == column.names.index(role))
    return Characters(data.train.vocabulary).decode(own.targets.flat)


def test_all_lines_of_a_role_are_one_text(play):
    data = load("shakespeare", least=2, length=20)
    assert data.train.columns["role"].names == ("First Witch", "LADY MACBETH")
    assert (
        said(data, "First Witch")
        == "hen shall we three meet again?\nIn thunder, lightning, or in rain?\nWhere the place?"
    )
    assert said(data, "LADY MACBETH") == "ut, damned spot!\nWhat's done is done:\nto bed."
    federation = data.partition("by", column="role", test_share=0.3)
    assert federation.client_names == ("First Witch", "LADY MACBETH")


def test_roles_that_say_little_are_left_out(play):
    assert load("shakespeare", least=60).train.columns["role"].names == ("First Witch",)
    with pytest.raises(
        DataError, match=r"input.txt: expected a role with 2000 characters or more, found none; set least"
    ):
        load("shakespeare")


def test_another_form_is_refused(play):
    play.write_text("When shall we three meet again?\n")
    with pytest.raises(DataError, match="expected blocks that start with a role's name and a colon, found 'When shall"):
        load("shakespeare")


def test_a_missing_file_is_one_line():
    with pytest.raises(
        DataError, match=r"data 'shakespeare': expected one of .*, found none; set FEDPACE_DATA"
    ) as caught:
        load("shakespeare")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [on_disk("shakespeare")])
def test_the_real_plays(real_data, name):
    data = load(name)
    assert len(load(name, least=2).train.columns["role"].names) == 298
    assert len(data.train.columns["role"].names) == 99
    federation = data.partition("by", column="role", test_share=0.2)
    assert len(federation) == 99
    assert "ROMEO" in federation.client_names
    assert said(data, "ROMEO").startswith("s the day so young?")
    assert data.train.outputs == 63 + 3
    assert federation.shape == (80,)
