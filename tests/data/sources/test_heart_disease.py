import os

import pytest

from fedpace.core import DataError
from fedpace.data import load

from ..helpers import on_disk

HEADER = "hospital,age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,num"
SMALL = f"""{HEADER}
cleveland,63,1,1,145,233,1,2,150,0,2.3,3,0,6,0
cleveland,67,1,4,160,286,0,2,108,1,1.5,2,3,3,2
hungarian,28,1,2,130,132,0,2,185,0,0,,,,0
va,63,1,4,140,260,0,1,112,1,3,2,,,2
va,44,0,4,,,,1,,1,0,,,7,1
"""


def test_four_hospitals_and_whether_there_is_a_disease(tmp_path):
    (tmp_path / "data" / "heart_disease").mkdir(parents=True)
    (tmp_path / "data" / "heart_disease" / "heart_disease.csv").write_text(SMALL)
    data = load("heart_disease")
    assert data.train.targets.tolist() == [0, 1, 0, 1, 1]
    assert data.train.classes == ("healthy", "disease")
    assert set(data.train.schema.categories) == {"sex", "cp", "fbs", "restecg", "exang", "slope", "thal"}
    federation = data.partition("by", column="hospital", held_out="va")
    assert federation.client_names == ("cleveland", "hungarian")
    assert [note.partition(" that")[0] for note in federation.notes] == [
        "1 test example has a value of 'sex'",
        "2 test examples have a value of 'restecg'",
        "1 test example has a value of 'thal'",
    ]
    with pytest.raises(DataError, match="1 test example has a value of 'sex'"):
        load("heart_disease", unseen="refuse").partition("by", column="hospital", held_out="va")


def test_a_missing_file_is_one_line_that_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDPACE_DATA", str(tmp_path / "given"))
    with pytest.raises(DataError) as caught:
        load("heart_disease")
    assert f"{tmp_path}/given/heart_disease/heart_disease.csv" in str(caught.value)
    assert "set FEDPACE_DATA" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [on_disk("heart_disease")])
def test_the_real_patients(real_data, name):
    data = load(name)
    assert (len(data.train), data.train.targets.sum()) == (920, 509)
    federation = data.partition("by", column="hospital", test_share=0.25)
    assert [
        len(client) + len(test) for client, test in zip(federation.clients, federation.client_tests, strict=True)
    ] == [*(303, 294, 123, 200)]
    assert "ca missing" in federation.encoding.columns
    unseen = data.partition("by", column="hospital", held_out="cleveland")
    assert os.linesep not in "".join(unseen.notes)
