import pytest

from fedpace.core import RoundRecord, RunFolderError, Writer
from fedpace.engine.rounds import Rounds, past_of, read_lines


@pytest.fixture
def file(tmp_path):
    return tmp_path / "rounds.jsonl"


def written(file, count):
    rounds = Rounds(file, Writer())
    rounds.begin()
    for number in range(count):
        rounds.append(RoundRecord(round=number, metrics={"accuracy": number / 10}))
    return rounds


def test_lines_are_read_as_they_were_written(file):
    rounds = written(file, 3)
    assert rounds.count == 3
    assert [record.round for _, record in read_lines(file)] == [0, 1, 2]
    assert b"".join(line for line, _ in read_lines(file)) == file.read_bytes()


def test_the_past_is_that_of_the_lines_whoever_reads_them(file):
    rounds = written(file, 3)
    pasts = [rounds.past(count) for count in range(4)]
    assert len(set(pasts)) == 4
    assert rounds.past(4) is None
    other = Rounds(file, Writer())
    other.read()
    assert [other.past(count) for count in range(4)] == pasts
    assert past_of(read_lines(file)) == pasts[3]


def test_a_figure_that_was_altered_alters_the_past_from_there_on(file):
    rounds = written(file, 3)
    file.write_bytes(file.read_bytes().replace(b"0.1", b"0.9"))
    other = Rounds(file, Writer())
    other.read()
    assert [other.past(count) == rounds.past(count) for count in range(4)] == [True, True, False, False]


@pytest.mark.parametrize("rest", [b"", b"{", b'{"round": 3, "cut sho', b"\x00\x00", b"\xff"])
def test_a_last_line_that_was_cut_is_left_out_and_written_over(file, rest):
    whole = written(file, 3).past(3)
    file.write_bytes(file.read_bytes() + rest)
    assert len(read_lines(file)) == 3
    rounds = Rounds(file, Writer())
    rounds.read()
    assert [record.round for record in rounds.keep(3)] == [0, 1, 2]
    rounds.append(RoundRecord(round=3))
    assert [record.round for _, record in read_lines(file)] == [0, 1, 2, 3]
    assert rounds.past(3) == whole


def test_a_last_line_that_lacks_its_end_alone_is_read(file):
    whole = written(file, 3).past(3)
    file.write_bytes(file.read_bytes()[:-1])
    assert past_of(read_lines(file)) == whole


def test_what_is_kept_is_what_goes_on(file):
    rounds = written(file, 3)
    past = rounds.past(1)
    rounds.keep(1)
    assert (rounds.count, rounds.past(1), rounds.past(2)) == (1, past, None)
    assert len(read_lines(file)) == 1
    time = file.stat().st_mtime_ns
    rounds.keep(1)
    assert file.stat().st_mtime_ns == time  # nothing to do


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[:1] + lines[2:], r"line 2 is damaged \(expected round 1, found round 2: a line is lost"),
        (lambda lines: lines[:2] + lines[1:], r"line 3 is damaged \(expected round 2, found round 1"),
        (lambda lines: [lines[0], b"\n", *lines[1:]], r"line 2 is damaged \(Expecting value"),
        (lambda lines: [b"\xff\n", *lines[1:]], r"line 1 is damaged \('utf-8' codec"),
    ],
)
def test_lines_that_do_not_follow_one_another_are_refused(file, change, message):
    written(file, 3)
    file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))
    with pytest.raises(RunFolderError, match=rf"rounds.jsonl: {message}"):
        read_lines(file)


def test_no_history_is_one_line(file):
    with pytest.raises(RunFolderError, match="expected the history of a run, found no such file"):
        read_lines(file)
    file.mkdir()
    with pytest.raises(RunFolderError, match="cannot be read"):
        read_lines(file)


def test_separators_of_lines_in_a_text_separate_no_rounds(file):
    rounds = Rounds(file, Writer())
    rounds.begin()
    rounds.append(RoundRecord(round=0, stage="a\u2028b\x85c"))
    assert [record.stage for _, record in read_lines(file)] == ["a\u2028b\x85c"]
