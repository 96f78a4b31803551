import errno
import json
import os
import shutil

import pytest

from fedpace.core import Disk

from ..data.helpers import png
from .helpers import FAST, SHORT, losses, run_json, snapshot, strict

# Run folders.


def test_a_folder_that_holds_a_run_is_left_alone(fedpace, place):
    assert fedpace("run", "fedavg", *FAST, "--out", "mine").code == 0
    before = snapshot(place)
    assert fedpace("run", "fedavg", *FAST, "--out", "mine") == (
        2,
        "",
        "error: mine: already holds a run; add --resume to go on, or choose another --out\n",
    )
    found = fedpace("run", "fedavg", *FAST, "--set", "local.lr=0.5", "--out", "mine", "--resume")
    assert found == (
        2,
        "",
        "error: mine: holds a run with local.lr = 0.001, this one has 0.5; choose another --out\n",
    )
    assert fedpace("run", "gma", *FAST, "--out", "mine", "--resume").code == 2
    assert snapshot(place) == before


def test_a_finished_run_may_be_resumed(fedpace, place):
    fedpace("run", "fedavg", *FAST, "--out", "mine")
    before = losses("mine"), (place / "mine" / "model.safetensors").read_bytes()
    assert fedpace("run", "fedavg", *FAST, "--out", "mine", "--resume").code == 0
    assert (losses("mine"), (place / "mine" / "model.safetensors").read_bytes()) == before


def test_resume_without_a_run_begins_one(fedpace):
    assert fedpace("run", "fedavg", *FAST, "--out", "mine", "--resume").code == 0
    assert len(losses("mine")) == 2


def test_the_default_folder_names_method_data_and_seed(fedpace, place):
    fedpace("run", "gma", *FAST, "--seed", "3")
    assert run_json(place / "runs" / "gma-digits-seed3")["config"]["seed"] == 3


def test_a_seed_changes_the_run_however_it_is_given(fedpace):
    for arguments in (["--seed", "3", "--out", "a"], ["--set", "seed=3", "--out", "b"], ["--out", "c"]):
        assert fedpace("run", "fedavg", *FAST, *arguments).code == 0
    assert losses("a") != losses("c")
    assert losses("a") == losses("b")


def test_options_and_settings_hold_together(fedpace):
    given = [*FAST, "--clients", "5", "--set", "data.partition.name=iid", "--set", "rounds=2", "--out", "mine"]
    assert fedpace("run", "fedavg", *given).code == 0
    assert run_json("mine")["config"]["data"]["partition"].items() >= {"name": "iid", "clients": 5}.items()


def test_a_toml_file_is_a_method(fedpace, place):
    (place / "mine.toml").write_text('extends = "gma"\nrounds = 1\nmodel = "linear"\naggregate.rule.tau = 0.7\n')
    assert fedpace("run", "mine.toml", *SHORT, "--out", "run").code == 0
    config = run_json("run")["config"]
    assert (config["method"], config["rounds"], config["aggregate"]["rule"]["tau"]) == ("mine", 1, 0.7)


def test_own_data_from_a_folder_of_images(fedpace, place):
    for number in range(40):
        folder = place / "pets" / ("cat", "dog")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.png").write_bytes(png(number))
    found = fedpace("run", "fedavg", *FAST, "--data", place / "pets", "--set", "data.partition=iid", "--json")
    assert (found.code, found.err) == (0, "")
    assert run_json(place / "runs" / "fedavg-pets-seed0")["config"]["data"]["source"] == str(place / "pets")


# What is printed.


def test_run_says_what_came_out_and_where_it_is(fedpace, place):
    found = fedpace("run", "fedavg", *FAST, "--out", place / "mine")
    assert (found.code, found.err) == (0, "")
    final = json.loads((place / "mine" / "rounds.jsonl").read_text().splitlines()[-1])["metrics"]["accuracy"]
    assert f"final {final:.2%}" in found.out
    assert f"{place / 'mine' / 'curves.png'}\n" in found.out
    assert (place / "mine" / "curves.png").stat().st_size > 0


def test_compare_shows_spread_and_paired_differences(fedpace, place):
    found = fedpace("compare", "fedavg", "gma", *FAST, "--seeds", "0,1,2", "--out", place / "out", "--workers", "1")
    assert (found.code, found.err) == (0, "")
    assert found.out.count("±") >= 2
    assert "difference to fedavg" in found.out
    assert "95 %" in found.out
    for name in ("comparison.md", "comparison.png"):
        assert f"{place / 'out' / name}\n" in found.out
        assert (place / "out" / name).stat().st_size > 0
    assert len((place / "out" / "comparison.md").read_text().splitlines()) > 3


def test_compare_of_methods_that_share_their_settings_warns_of_nothing(fedpace, place):
    found = fedpace("compare", "fedavg", "gma", *FAST, "--seeds", "0", "--out", place / "out", "--workers", "1")
    assert (found.code, found.err) == (0, "")
    assert "differ in more than their names" not in found.out


def test_compare_names_what_else_differs_between_methods(fedpace, place):
    off = [part for stage in ("anneal", "dampen", "prune") for part in ("--set", f"{stage}.enabled=false")]
    methods = ("fedavg", "fedpace-paper")
    found = fedpace("compare", *methods, *FAST, *off, "--seeds", "0,1", "--out", place / "out", "--workers", "1")
    assert found.code == 0
    warning = "methods differ in more than their names: weighting (fedavg: samples; fedpace-paper: uniform)"
    assert found.err == f"warning: {warning}\n"


def test_compare_as_json(fedpace, place):
    found = fedpace("compare", "fedavg", "gma", *FAST, "--seeds", "0,1,2", "--out", "out", "--workers", "1", "--json")
    table = strict(found.out)
    assert found.err == ""
    assert (table["reference"], table["metric"], table["level"]) == ("fedavg", "final", 0.95)
    first, second = table["rows"]
    assert first["difference"] is None
    assert second["difference"]["low"] <= second["difference"]["mean"] <= second["difference"]["high"]
    for row in (first, second):
        for seed in ("0", "1", "2"):
            shown = strict(fedpace("show", f"out/{row['method']}-seed{seed}", "--json").out)
            assert row["values"][seed] == shown["summary"]["final"]
        assert row["mean"] == pytest.approx(sum(row["values"].values()) / 3)


def test_compare_with_one_seed_has_no_interval(fedpace):
    table = strict(fedpace("compare", "fedavg", "gma", *FAST, "--seeds", "4", "--out", "out", "--json").out)
    assert table["rows"][1]["difference"]["low"] is None
    assert table["rows"][1]["std"] is None


def test_compare_deals_the_data_as_told(fedpace):
    options = ["--data", "digits", "--partition", "dirichlet", "--alpha", "5", "--clients", "4", "--seeds", "0"]
    assert fedpace("compare", "fedavg", *FAST, *options, "--out", "out").code == 0
    assert run_json("out/fedavg-seed0")["config"]["data"]["partition"] == {
        "name": "dirichlet",
        "clients": 4,
        "test_share": 0.0,
        "limit": None,
        "alpha": 5.0,
        "min_size": 10,
    }


def test_a_second_compare_trains_only_what_is_missing(fedpace, place):
    fedpace("compare", "fedavg", *FAST, "--seeds", "0", "--out", "out", "--workers", "1")
    model = place / "out" / "fedavg-seed0" / "model.safetensors"
    before = model.stat().st_mtime_ns
    assert fedpace("compare", "fedavg", *FAST, "--seeds", "0,1", "--out", "out", "--workers", "1").code == 0
    assert model.stat().st_mtime_ns == before
    assert len(losses("out/fedavg-seed1")) == 2


def test_two_files_of_one_name_are_not_mixed_up(fedpace, place):
    for folder, parent in (("a", "fedavg"), ("b", "gma")):
        (place / folder).mkdir()
        (place / folder / "mine.toml").write_text(f'extends = "{parent}"\n')
    found = fedpace("compare", "a/mine.toml", "b/mine.toml", *FAST, "--seeds", "0", "--out", "out", "--json")
    if found.code == 0:
        assert len(strict(found.out)["rows"]) == 2
    else:
        assert (found.code, found.err.count("\n")) == (2, 1)
        assert not (place / "out").exists()


def test_compare_tells_of_a_stage_that_did_nothing(fedpace):
    idle = ["--set", "anneal.first=0", "--set", "anneal.last=1", "--set", "anneal.k=2"]
    found = fedpace("compare", "fedgga-paper", *FAST, *idle, "--seeds", "0", "--out", "out")
    assert found.code == 0
    assert found.err.startswith("warning: annealing did nothing: none of 4 perturbations was accepted")
    assert found.err.count("\n") == 1


def test_sweep_over_a_grid(fedpace, place):
    grid = ["--grid", "local.lr=0.1,0.01", "--grid", "local.epochs=1,2"]
    found = fedpace("sweep", "fedavg", *FAST, *grid, "--out", "out", "--workers", "1")
    assert (found.code, found.err) == (0, "")
    again = fedpace("sweep", "fedavg", *FAST, *grid, "--out", "out", "--workers", "1", "--json")
    rows = strict(again.out)["rows"]
    labels = [row["method"] for row in rows]
    assert labels == [f"local.lr={lr}, local.epochs={epochs}" for lr in (0.1, 0.01) for epochs in (1, 2)]
    assert rows[0]["values"]["0"] != rows[2]["values"]["0"]
    assert all(label in (place / "out" / "comparison.md").read_text() for label in labels)


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES])
@pytest.mark.parametrize("operation", ["make_folder", "write", "save", "append", "rename"])
def test_a_disk_that_takes_nothing_is_one_line_whatever_was_to_be_written(fedpace, monkeypatch, operation, number):
    def refuse(disk, *arguments):
        raise OSError(number, os.strerror(number))

    assert fedpace("run", "fedavg", *FAST, "--out", "begun").code == 0
    shutil.rmtree("begun/checkpoint")  # so that it begins again
    monkeypatch.setattr(Disk, operation, refuse)
    for arguments in (["--out", "new"], ["--out", "begun", "--resume"]):
        found = fedpace("run", "fedavg", *FAST, *arguments)
        assert found.code == 2
        assert f": cannot be written ({os.strerror(number)})" in found.err.splitlines()[-1]
        assert "Traceback" not in found.err


def test_compare_writes_a_report_and_report_reads_folders_of_runs(fedpace, tmp_path):
    fast = ["--model", "linear", "--rounds", "2", "--set", "local.max_steps=1", "--workers", "1"]
    code, out, _ = fedpace("compare", "fedavg", "gma", "--seeds", "0,1", *fast, "--out", tmp_path / "runs")
    assert code == 0
    page = tmp_path / "runs" / "report.html"
    assert str(page) in out
    assert page.stat().st_size > 1_000_000
    code, out, _ = fedpace("report", tmp_path / "runs", "--out", tmp_path / "mine.html", "--title", "Mine & more")
    assert (code, out.strip()) == (0, f"wrote: {tmp_path / 'mine.html'}")
    text = (tmp_path / "mine.html").read_text()
    assert "<title>Mine &amp; more</title>" in text
    assert "<b>2</b> methods" in text
    code, _, err = fedpace("report", tmp_path)
    assert code == 2
    assert "neither a run folder" in err


def test_seeds_may_be_ranges(fedpace):
    table = strict(fedpace("sweep", "fedavg", *FAST, "--grid", "local.lr=0.1", "--seeds", "3-4,7", "--json").out)
    assert set(table["rows"][0]["values"]) == {"3", "4", "7"}


def test_a_dry_run_says_what_would_be_and_writes_nothing(fedpace, place):
    found = fedpace("run", "fedpace", *SHORT, "--model", "linear", "--dry-run")
    assert (found.code, found.err) == (0, "")
    for part in ("650, of which 650 are shared", "anneal  rounds 2–15", "3, all of them in each round", "about"):
        assert part in found.out
    table = fedpace("compare", "fedavg", "gma", *FAST, "--seeds", "0-2", "--workers", "1", "--dry-run")
    assert (table.code, table.err) == (0, "")
    assert "6 runs, of which 0 are done" in table.out
    assert snapshot(place) == {}
