"""Files that strangers wrote: each ends in one line, runs nothing, stays in its folder, and takes little memory."""

import io
import json
import os
import pickle
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner

import fedpace
from fedpace.cli import app
from fedpace.core import FedpaceError
from fedpace.experiments import attack_membership, load_config

RUNS_CODE = "subprocess:getoutput"
SHORT = ["--model", "linear", "--rounds", "1", "--set", "executor=serial", "--set", "local.max_steps=1"]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """The working folder, alone with what a stranger sent."""
    monkeypatch.setenv("FEDPACE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def fedpace_command(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(*arguments):
    """The one line in which a command ends."""
    found = fedpace_command(*arguments)
    assert isinstance(found.exception, FedpaceError), found.exception or found.output
    message = str(found.exception)
    assert message.isprintable()
    return message


# Code.

PRESETS = {
    "model": f'[model]\nname = "{RUNS_CODE}"\ncmd = "touch owned"',
    "model by its name": f'model = "{RUNS_CODE}"',
    "data": 'data.source = "evil:Source"',
    "option of data": 'data.options.name = "evil:Source"',
    "partition": 'data.partition = "evil:Partition"',
    "augmentation": 'data.augment = ["flip", "evil:Augmentation"]',
    "task": 'task = "evil:Task"',
    "method": 'local = "evil:Method"',
    "rule": 'aggregate.rule = "evil:Rule"',
    "executor": 'executor.name = "evil:Executor"',
    "what is tuned": 'tunable."aggregate.rule".choices = ["mean", "evil:Rule"]',
}
COMMANDS = {
    "run": ["run", "shared.toml", "--rounds", "1"],
    "compare": ["compare", "fedavg", "shared.toml", "--seeds", "0"],
    "sweep": ["sweep", "shared.toml", "--grid", "rounds=1,2"],
}


@pytest.fixture
def evil(place, monkeypatch):
    """A module that leaves a file when it is imported."""
    (place / "evil.py").write_text("import pathlib\npathlib.Path('owned').write_text('')\n")
    monkeypatch.syspath_prepend(place)


@pytest.mark.parametrize("content", PRESETS.values(), ids=PRESETS)
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.usefixtures("evil")
def test_a_preset_runs_no_code(content, command, place):
    (place / "shared.toml").write_text(content)
    assert "shared.toml: " in (message := refused(*command))
    assert "is code to run" in message
    assert "--trust" in message
    assert not Path("owned").exists()


@pytest.mark.usefixtures("evil")
def test_nor_does_the_one_that_a_preset_extends(place):
    (place / "below.toml").write_text('aggregate.rule = "evil:Rule"')
    (place / "shared.toml").write_text('extends = "below.toml"\naggregate.rule = "mean"')
    assert "below.toml: aggregate.rule = 'evil:Rule' is code to run" in refused("run", "shared.toml", *SHORT)
    with pytest.raises(FedpaceError, match="is code to run"):
        load_config("shared.toml")


def own_modules(place, monkeypatch):
    (place / "mine.py").write_text("from fedpace.aggregation import Mean\nclass Rule(Mean):\n    'Mine.'\n")
    monkeypatch.syspath_prepend(place)


def test_whoever_trusts_a_preset_says_so(place, monkeypatch):
    own_modules(place, monkeypatch)
    (place / "shared.toml").write_text('aggregate.rule = "mine:Rule"')
    assert fedpace_command("run", "shared.toml", *SHORT, "--out", "trusted", "--trust").exit_code == 0
    assert json.loads(Path("trusted/run.json").read_text())["config"]["aggregate"]["rule"] == {"name": "mine:Rule"}
    with fedpace.trusted_files():
        load_config("shared.toml")
    refused("run", "shared.toml", *SHORT)  # trust ends with the command


def test_what_is_typed_is_trusted(place, monkeypatch):
    own_modules(place, monkeypatch)
    typed = ["run", "fedavg", *SHORT, "--set", "aggregate.rule=mine:Rule", "--out", "typed"]
    assert fedpace_command(*typed).exit_code == 0
    assert fedpace_command(*typed, "--resume").exit_code == 0


SOMEWHERE_IN_A_RUN = {
    "model": {"model": {"name": RUNS_CODE, "cmd": "touch owned"}},
    "rule": {"aggregate": {"rule": {"name": "evil:Rule"}}},
    "data": {"data": {"source": "evil:Source"}},
    "attack": {"attack": {"name": "evil:Attack"}, "attackers": 0.2},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """An ordinary run."""
    folder = tmp_path_factory.mktemp("shared") / "run"
    assert fedpace_command("run", "fedavg", *SHORT, "--out", folder).exit_code == 0
    return folder


@pytest.fixture
def shared(run, place):
    """Its folder as a stranger sends it, with other settings in ``run.json``."""

    def changed(**settings):
        for file in ("run.json", "rounds.jsonl", "model.safetensors"):
            (place / "sent").mkdir(exist_ok=True)
            (place / "sent" / file).write_bytes((run / file).read_bytes())
        description = json.loads((run / "run.json").read_text())
        description.pop("finished", None)  # a stranger would have made its digests fit
        description["config"] |= settings
        (place / "sent" / "run.json").write_text(json.dumps(description))
        return place / "sent"

    return changed


@pytest.mark.parametrize("settings", SOMEWHERE_IN_A_RUN.values(), ids=SOMEWHERE_IN_A_RUN)
@pytest.mark.usefixtures("evil")
def test_a_run_folder_runs_no_code(settings, shared):
    folder = shared(**settings)
    for command in (["attack", "membership", folder], ["attack", "byzantine", folder]):
        assert "is code to run" in refused(*command)
    assert "is code to run" in refused("run", "fedavg", *SHORT, "--out", folder, "--resume")
    with pytest.raises(FedpaceError, match="is code to run"):
        attack_membership(folder)
    for command in (["show", folder], ["show", folder, "--json"], ["report", folder]):
        assert fedpace_command(*command).exit_code == 0
    assert not Path("owned").exists()


@pytest.mark.usefixtures("evil")
def test_how_a_run_was_executed_is_nothing_to_its_readers(shared):
    folder = shared(executor={"name": "evil:Executor"}, tunable={"local.lr": {"choices": ["evil:Rule", "b"]}})
    assert fedpace_command("attack", "byzantine", folder).exit_code == 0
    assert fedpace_command("run", "fedavg", *SHORT, "--out", folder, "--resume").exit_code == 0
    assert not Path("owned").exists()


# Paths.


@pytest.mark.parametrize(
    "name", ["../../../escaped", "/tmp/escaped", "..", "a/../../b", "\\u0000", "x" * 5000, ".hidden"]
)
def test_a_name_stays_in_the_folder_of_runs(name, place):
    (place / "shared.toml").write_text(f'method = "{name}"\n')
    found = fedpace_command("run", "shared.toml", *SHORT)
    assert found.exit_code == 0, found.exception
    (folder,) = (place / "runs").iterdir()
    assert not folder.name.startswith(".")
    assert (folder / "model.safetensors").exists()
    assert {path.name for path in place.iterdir()} == {"shared.toml", "runs"}


@pytest.mark.parametrize("link", ["rounds.jsonl", ".lock", "checkpoint", "clients/00000-00000.safetensors"])
def test_a_run_folder_leads_nowhere_else(link, shared, place):
    folder = shared()
    own = place / "own"
    own.write_text("mine")
    (folder / link).parent.mkdir(exist_ok=True)
    (folder / link).unlink(missing_ok=True)
    (folder / link).symlink_to(own)
    assert "expected no link in a run folder" in refused("run", "fedavg", *SHORT, "--out", folder, "--resume")
    assert own.read_text() == "mine"


# Memory: what is read may make a process grow by so much and no more.

MEGABYTES = 450


def png(width, height, mode="L"):
    file = io.BytesIO()
    Image.new(mode, (width, height)).save(file, format="png")
    return file.getvalue()


def write_images(folder, number, side):
    content = png(side, side, "1")
    for index in range(number):
        path = folder / "ab"[index % 2] / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def huge_label(folder):
    images = [{"bytes": png(4, 4), "path": ""}] * 2
    pq.write_table(pa.table({"image": images, "label": [0, 60_000_000]}), folder / "label.parquet")


def one_number_in_all_rows(folder):
    numbers = np.zeros(2**24, np.int64)
    with pq.ParquetWriter(folder / "rows.parquet", pa.schema({"image": pa.int8(), "label": pa.int64()})) as writer:
        for _ in range(4):
            writer.write_table(pa.table({"image": numbers.astype(np.int8), "label": numbers}))


def one_text_in_all_rows(folder):
    rows = pa.DictionaryArray.from_arrays(pa.array([0] * 10_000, pa.int32()), pa.array(["x" * 10**6]))
    table = pa.table({"text": rows, "label": rows})
    pq.write_table(table, folder / "texts.parquet", compression="zstd", store_schema=False)


def one_image_in_all_rows(folder):
    image = {"bytes": png(2000, 2000), "path": ""}
    pq.write_table(pa.table({"image": [image] * 500, "label": [0, 1] * 250}), folder / "images.parquet")


def wide_table(folder):
    (folder / "wide.csv").write_text(",".join(f"c{i}" for i in range(500_000)) + "\n" + ",".join("1" * 500_000))


BOMBS = {
    "label": (["label.parquet", {}], "label.parquet: labels: expected classes from 0 to at most 99999, found 60000000"),
    "rows": (["rows.parquet", {}], "rows.parquet: expected at most 268 MB in a file of 1 MB, found 537 MB once it is"),
    "text": (
        ["texts.parquet", {"target": "label"}],
        "found 20000 MB once it is unpacked; if that is right",
    ),
    "texts": (["text", {"path": "texts.parquet"}], "texts.parquet: expected at most 268 MB"),
    "images": (["images.parquet", {}], "row 67 of images.parquet and the images before it: expected at most 268 MB"),
    "pixels": (["large", {}], "0.png: expected at most 67 million pixels, found 13000 × 13000"),
    "all pixels": (["many", {}], "and the images before it: expected at most 268 MB"),
    "resizing": (["digits", {"size": 4096}], "images resized to 4096 × 4096: expected at most 268 MB"),
    "larger": (["digits", {"size": 10**6}], "size: input should be less than or equal to 4096, found 1000000"),
    "columns": (["wide.csv", {"target": "c0"}], "wide.csv: expected at most 50000 columns, found 500000"),
}
READ = """
import json, resource, sys
import fedpace
fedpace.load("digits").partition("iid", clients=2)
for source, parameters in json.loads(sys.argv[1]):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        fedpace.load(source, **parameters)
        said = "nothing"
    except fedpace.FedpaceError as error:
        said = str(error)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps([said, grown * (1 if sys.platform == "darwin" else 1024)]))
"""


@pytest.fixture(scope="module")
def readings(tmp_path_factory):
    """What is said of each bomb, and by how many bytes the memory of the process grew: all in one of their own."""
    folder = tmp_path_factory.mktemp("bombs")
    for build in (huge_label, one_number_in_all_rows, one_text_in_all_rows, one_image_in_all_rows, wide_table):
        build(folder)
    write_images(folder / "large", number=2, side=13_000)
    write_images(folder / "many", number=12, side=5_000)
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 6_000_000
    reading = [sys.executable, "-c", READ, json.dumps([bomb for bomb, _ in BOMBS.values()])]
    environment = {**os.environ, "FEDPACE_CACHE": str(folder / "cache")}
    done = subprocess.run(reading, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return dict(zip(BOMBS, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_file_does_not_fill_the_memory(bomb, readings):
    said, grown = readings[bomb]
    assert BOMBS[bomb][1] in said
    assert said.isprintable()
    assert grown < MEGABYTES * 10**6


def test_what_is_meant_to_be_large_is_read(place, monkeypatch):
    source = write_images(place / "images", number=2, side=500)
    monkeypatch.setattr("fedpace.data._limits.FREE", 1)
    with pytest.raises(FedpaceError, match="set FEDPACE_UNPACKED=250000"):
        fedpace.load(source)
    monkeypatch.setenv("FEDPACE_UNPACKED", "many")
    with pytest.raises(FedpaceError, match="FEDPACE_UNPACKED: expected a number of bytes, found 'many'"):
        fedpace.load(source)
    monkeypatch.setenv("FEDPACE_UNPACKED", "500000")
    assert len(fedpace.load(source).train) == 2


# Names.

NAME = "\x1b[31m<script>alert(1)</script>[red]|`x`](http://y)$\\frac{\u202e"


@pytest.fixture
def named(shared):
    """A run folder in which every name is hostile."""
    folder = shared(method=NAME, description=NAME)
    description = json.loads((folder / "run.json").read_text())
    description |= {"warnings": [NAME], "metric": {"name": NAME, "rises": True, "percent": True}}
    (folder / "run.json").write_text(json.dumps(description))
    (record,) = map(json.loads, (folder / "rounds.jsonl").read_text().splitlines())
    record |= {"stage": NAME, "metrics": {NAME: 0.5}, "dropped": [{"client": 0, "reason": NAME}]}
    record["agreement"] = {"mean": 0.5, "histogram": [1, 1], "layers": {NAME: [1, 1]}}
    (folder / "rounds.jsonl").write_text(json.dumps(record) + "\n")
    return folder


def shows_harmless(text):
    assert "alert(1)" in text, "the name is not shown at all"
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_a_terminal_obeys_no_name(named):
    found = fedpace_command("show", named)
    assert found.exit_code == 0, found.exception
    shows_harmless(found.output)
    assert "[red]" in found.output
    table = fedpace_command("attack", "byzantine", named)
    assert table.exit_code == 0, table.exception
    assert "\x1b" not in table.output


def test_the_report_holds_no_element_of_a_name(named, place):
    assert fedpace_command("report", named, named, "--out", "report.html").exit_code == 0
    page = (place / "report.html").read_text()
    own = page[: page.index("</main>")]  # behind it come our scripts
    shows_harmless(own)
    assert "<script>alert" not in own


def test_tables_and_pictures_take_names_as_they_are(named, place):
    from fedpace.analysis import metric_curves

    result = fedpace.Result.read(named)
    result.plot(place / "curves.png")
    metric_curves({NAME: [result.records]}, place / "method.png", metric=result.metric)
    shows_harmless(str(result))
    assert "<script>" not in result._repr_html_()
    table = result_table()
    assert "<script>" not in table.to_markdown() + table._repr_html_()
    shows_harmless(table.to_markdown())
    row = table.to_markdown().splitlines()[-3]
    assert row.replace(r"\|", "").count("|") == row.count(" | ") + 2


def result_table():
    from fedpace.analysis import Comparison, summarise

    return Comparison({NAME: {0: summarise([])}})


def test_clients_and_classes_of_a_file_are_only_names(place):
    rows = "".join(f'"{NAME}",{i},{NAME.replace(",", "")}\n' for i in range(20))
    (place / "x.csv").write_text(f"who,a,y\n{rows}west,3,b\nwest,4,b\n", encoding="utf-8")
    given = ["data", "show", "x.csv", "--set", 'data.options={target="y"}', "--partition", "by", "--set", "column=who"]
    found = fedpace_command(*given)
    assert found.exit_code == 0, found.exception
    shows_harmless(found.output)
    assert len(list((place / "runs").glob("*.png"))) == 1


# Damage: whatever a file holds, reading it ends in one line.


def header(content, rest=b""):
    """A safetensors file with this header."""
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return len(text).to_bytes(8, "little") + text + rest


def tensor(dtype="F32", shape=(1,), offsets=(0, 4), name="head.weight"):
    return header({name: {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}}, bytes(4))


def deep(opening, closing, levels=100_000):
    return opening * levels + closing * levels


WEIGHTS = {
    "nothing": b"",
    "header longer than memory": (2**63).to_bytes(8, "little") + b"{}",
    "header longer than the file": (10**6).to_bytes(8, "little") + b"{}",
    "no JSON": header(b"{"),
    "deep JSON": header(deep(b"[", b"]")),
    "a list": header([1]),
    "huge shape": tensor(shape=(2**40, 2**40)),
    "negative shape": tensor(shape=(-1,)),
    "no numbers, many axes": tensor(shape=(0, 2**62, 2**62), offsets=(0, 0)),
    "other offsets": tensor(offsets=(0, 2**40)),
    "offsets reversed": tensor(offsets=(4, 0)),
    "unknown type": tensor(dtype="F999"),
    "type that torch lacks": tensor(dtype="F4", shape=(8,)),
    "other name": tensor(name="\x1b[31m"),
    "name of parts": tensor(name="a.b.c.d"),
    "pickle": pickle.dumps({"a": 1}),
}
TABLES = {
    "nothing": b"",
    "no rows": b"a,y\n",
    "huge field": b"a,y\n" + b"x" * 3_000_000 + b",1\n",
    "open quote": b'a,y\n"1,2\n3,4\n',
    "other widths": b"a,y\n1,2,3\n",
    "null bytes": b"a,y\n\0,\0\n",
    "not UTF-8": b"a,y\n\xff\xfe,1\n",
    "same names": b"y,y\n1,2\n",
    "huge number": b"a,y\n" + b"9" * 5000 + b",1\n2,1\n",
    "infinity": b"a,y\ninf,1\n-inf,2.5\n",
    "carriage returns": b"a,y\r1,2\r",
}
USER = '{"users":["a"],"num_samples":[1],"user_data":{"a":{"x":%s,"y":%s}}}'
LEAF = {
    "nothing": "",
    "deep": deep("[", "]"),
    "deep objects": deep('{"a":', "}"),
    "deep images": USER % (deep("[", "]", 900), "[1]"),
    "long number": USER % (f"[[{'9' * 5000}]]", "[1]"),
    "large number": USER % (f"[[{'9' * 400}]]", "[1]"),
    "large label": USER % ("[[0]]", f"[{'9' * 400}]"),
    "not a number": USER % ("[[NaN]]", "[1]"),
    "label out of range": USER % ("[[0]]", "[62]"),
    "negative label": USER % ("[[0]]", "[-1]"),
    "other keys": '{"users":[]}',
    "no users": '{"users":[],"num_samples":[],"user_data":{}}',
}
PRESET = {
    "nothing is known": "\x1b[31m = 1",
    "open": "model = [",
    "deep": f"a = {deep('[', ']')}",
    "deep tables": f"a = {deep('{a=', '}', 5_000)}",
    "long number": f"rounds = {'9' * 5000}",
    "infinite": "local.lr = inf",
    "a date": "model = 2020-01-01",
    "a list of models": 'model = ["linear"]',
    "extends a list": "extends = [1]",
    "extends a table": "extends = {a = 1}",
    "extends a folder": 'extends = "/tmp.toml"',
    "extends itself": 'extends = "x.toml"',
    "not text": "method = 3",
    "options of data": 'data.options = {source = "digits"}',
    "a size twice": 'data.source = "digits"\ndata.size = 8\ndata.options = {size = 4}',
    "a path of data": 'data.source = "/dev/null"',
    "weights from nowhere": 'model = {name = "linear", weights = "/dev/null"}',
    "long name": f'aggregate.rule = "{"x" * 100_000}"',
    "too many workers": 'executor = {name = "processes", workers = 1000000}',
}


def png_chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def claimed(width, height):
    """A PNG that says it is so large."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = {b"IHDR": head, b"IDAT": zlib.compress(b""), b"IEND": b""}
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(kind, content) for kind, content in chunks.items())


IMAGES = {
    "nothing": b"",
    "text": b"hello",
    "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(touch owned) run\n",
    "cut": png(20, 20)[:40],
    "claims to be huge": claimed(2**31 - 1, 2**31 - 1),
    "claims to be large": claimed(9_000, 9_000),
    "claims to be empty": claimed(0, 0),
    "no pixels in it": claimed(100, 100),
    "long text in it": png(4, 4)[:33] + png_chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(10**8))) + png(4, 4)[33:],
}
SUFFIXES = {"weights": "safetensors", "table": "csv", "preset": "toml", "images": "png", "leaf": "json"}


def read(kind, path):
    if kind == "weights":
        settings = {"model": {"name": "linear", "weights": str(path)}, "executor": "serial"}
        return fedpace.train("digits", rounds=1, settings=settings)
    if kind == "preset":
        return fedpace.train(method=path.name, rounds=1, settings={"local.max_steps": 1})
    return fedpace.load(path.parents[1] if kind == "images" else path, **({"target": "y"} if kind == "table" else {}))


CORPUS = {"weights": WEIGHTS, "table": TABLES, "leaf": LEAF, "preset": PRESET, "images": IMAGES}
HARMLESS = {"null bytes", "carriage returns"}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, files in CORPUS.items() for name in files])
def test_whatever_a_file_holds_reading_it_ends_in_one_line(kind, name, place):
    content = CORPUS[kind][name]
    path = place / ("images/a/x" if kind == "images" else "x")
    path.parent.mkdir(parents=True, exist_ok=True)
    path = path.with_suffix(f".{SUFFIXES[kind]}")
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    said = message_of(kind, path)
    assert (said is None) == (name in HARMLESS)
    assert said is None or (said.isprintable() and len(said) <= 2_000)
    assert not (place / "owned").exists()


def message_of(kind, path):
    """What reading a file ends in; nothing where it can be read."""
    try:
        read(kind, path)
    except FedpaceError as error:
        return str(error)
    return None


def damaged(content, seed):
    """A file with a byte changed, or cut short."""
    rng = np.random.default_rng(seed)
    place = int(rng.integers(len(content)))
    if seed % 4 == 0:
        return content[:place]
    return content[:place] + bytes([int(rng.integers(256))]) + content[place + 1 :]


@pytest.mark.parametrize("kind", ["images", "tables"])
def test_damaged_parquet_ends_in_one_line_or_can_be_read(kind, place):
    path = place / "x.parquet"
    image = [{"bytes": png(4, 4), "path": "a"}] * 4
    columns = {"image": image, "label": [0, 1, 1, 0]} if kind == "images" else {"a": [1.0, 2, 3, 4], "y": list("abba")}
    pq.write_table(pa.table(columns), path)
    whole = path.read_bytes()
    said = []
    for seed in range(200):
        path.write_bytes(damaged(whole, seed))
        said.append(message_of("leaf" if kind == "images" else "table", path))
    assert None in said
    assert len(set(said)) > 3
    assert all(line is None or (line.isprintable() and len(line) < 1_000) for line in said)


def test_no_pickle_is_read():
    sources = Path(fedpace.__file__).parent.rglob("*.py")
    reads = re.compile(r"import pickle|torch\.load\(|allow_pickle=True|joblib\.load|yaml\.load|\beval\(\w*[\"']")
    assert [path.name for path in sources if reads.search(path.read_text())] == []
