import json
import tomllib

import pytest
from click import Context
from typer.main import get_command

from fedpace.cli import app
from fedpace.experiments import preset_names

from .helpers import FAST, SHORT, snapshot, strict


@pytest.mark.parametrize("kind", ["methods", "presets", "data", "models", "partitions", "rules"])
def test_list(fedpace, kind):
    entries = strict(fedpace("list", kind, "--json").out)
    found = fedpace("list", kind)
    assert (found.code, found.err) == (0, "")
    words = {line.split(maxsplit=1)[0] for line in found.out.splitlines() if not line.startswith(" ")}
    assert set(entries) < words
    assert all(entries.values())


def test_list_presets_lists_all_of_them(fedpace):
    assert list(strict(fedpace("list", "presets", "--json").out)) == preset_names()


def test_show_a_run(fedpace):
    result = strict(fedpace("run", "gma", *FAST, "--out", "mine", "--json").out)
    found = fedpace("show", "mine")
    assert (found.code, found.err) == (0, "")
    for part in ("gma", "masked", "linear", f"{result['summary']['final']:.2%}"):
        assert part in found.out
    shown = strict(fedpace("show", "mine", "--json").out)
    assert shown["summary"] == result["summary"]
    assert shown["config"]["aggregate"]["rule"]["tau"] == 0.4


def test_json_of_what_was_never_measured_is_null(fedpace, place):
    result = fedpace("run", "fedavg", *FAST, "--set", "cohort.number=1", "--out", "mine", "--json")
    assert strict(result.out)["summary"]["similarity"] is None
    assert strict(fedpace("show", "mine", "--json").out)["summary"]["similarity"] is None
    run = json.loads((place / "mine" / "run.json").read_text())
    del run["finished"]  # stopped before its first round
    (place / "mine" / "run.json").write_text(json.dumps(run))
    (place / "mine" / "rounds.jsonl").write_text("")
    assert strict(fedpace("show", "mine", "--json").out)["summary"]["final"] is None
    assert fedpace("show", "mine").code == 0


def test_data_show_draws_a_picture(fedpace, place):
    options = ["--partition", "dirichlet", "--alpha", "0.1", "--clients", "3"]
    counts = strict(fedpace("data", "show", "digits", *options, "--json").out)
    assert snapshot(place) == {}
    assert counts["classes"] == list("0123456789")
    assert sum(map(sum, counts["counts"].values())) == 1438
    found = fedpace("data", "show", "digits", *options)
    assert (found.code, found.err) == (0, "")
    for client in counts["counts"].values():
        assert str(max(client)) in found.out
    (picture,) = snapshot(place)
    assert picture.suffix == ".png"
    assert str(picture.relative_to(place)) in found.out


def test_data_show_writes_where_it_is_told(fedpace, place):
    found = fedpace("data", "show", "digits", "--set", "clients=4", "--out", place / "new" / "deal.svg")
    assert (found.code, found.err) == (0, "")
    assert (place / "new" / "deal.svg").read_text().startswith("<?xml")
    assert f"{place / 'new' / 'deal.svg'}\n" in found.out


def test_data_show_refuses_a_picture_of_an_unknown_kind(fedpace, place):
    found = fedpace("data", "show", "digits", "--out", "deal.gif")
    assert (found.code, found.err.count("\n")) == (2, 1)
    assert "deal.gif: expected a name that ends in .pdf, .png, .svg" in found.err
    assert snapshot(place) == {}


def test_data_show_depends_on_seed_and_size(fedpace):
    zero, one, resized = (
        strict(fedpace("data", "show", "digits", "--json", *options).out)["counts"]
        for options in ([], ["--seed", "1"], ["--set", "size=4"])
    )
    assert zero == resized != one


def test_show_a_preset(fedpace):
    found = fedpace("show", "fedpace")
    assert (found.code, found.err) == (0, "")
    for part in ("FedPACE in stages that act", "rounds 2–15: a search for a point", "freeze  rounds 20–49"):
        assert part in found.out
    toml = found.out[found.out.index("description = ") :]
    assert tomllib.loads(toml)["anneal"]["k"] == 8
    assert strict(fedpace("show", "fedpace", "--json").out)["freeze"]["share"] == 0.9


def test_show_a_preset_of_ones_own(fedpace, place):
    (place / "mine.toml").write_text('extends = "gma"\ndescription = "mine [bold]\\u001b[2J"\n')
    found = fedpace("show", "mine.toml")
    assert (found.code, found.err) == (0, "")
    assert "mine [bold]" in found.out
    assert "\x1b" not in found.out


def test_a_run_folder_is_shown_even_if_it_is_called_like_a_preset(fedpace):
    assert fedpace("run", "fedavg", *FAST, "--out", "gma").code == 0
    assert "mean of last 10" in fedpace("show", "gma").out


def test_config_explains_a_key(fedpace):
    found = fedpace("config", "local.lr")
    assert (found.code, found.err) == (0, "")
    for part in ("a number above 0", "0.001", "local 'scaffold'"):
        assert part in found.out
    (k,) = strict(fedpace("config", "anneal.k", "--json").out)["explained"]
    assert (k["key"], k["default"]) == ("anneal.k", "8")


def test_config_lists_keys(fedpace):
    found = fedpace("config")
    assert (found.code, found.err) == (0, "")
    assert {"rounds", "seed", "local", "anneal"} <= set(strict(fedpace("config", "--json").out)["below"])
    assert "Clients train for so many rounds" in found.out
    assert "anneal.k" in fedpace("config", "anneal").out


def test_names_are_found_however_they_are_hyphenated_and_shown_as_they_are_registered(fedpace):
    given = ["--model", "small-cnn", "--data", "digit-domains", "--set", "aggregate.rule.name=and-mask"]
    config = strict(fedpace("show", "fedpace_paper", "--json").out)
    assert config["method"] == "fedpace-paper"
    plan = strict(fedpace("run", "and_mask", *given, *SHORT, "--rounds", "1", "--dry-run", "--json").out)
    assert (plan["method"], plan["data"], plan["stages"][0][0]) == ("and-mask", "digit_domains", "and_mask")
    (method,) = strict(fedpace("compare", "and_mask", *FAST, "--dry-run", "--json").out)["methods"]
    assert method == "and-mask"


def test_every_command_and_option_has_a_help_text():
    context = Context(get_command(app))
    waiting = [get_command(app)]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        assert command.help, command.name
        for parameter in command.params:
            if parameter.param_type_name == "argument":  # some versions of typer show no help of these
                metavar = parameter.make_metavar(context).strip("[]….").partition(":")[0]
                assert metavar in command.help, (command.name, parameter.name)
            else:
                assert parameter.help, (command.name, parameter.name)


def test_the_doctor_says_what_it_found_and_what_to_try(fedpace):
    fedpace(
        "run", "fedavg", "--model", "linear", *SHORT, "--set", "local.lr=0.01", "--rounds", "10", "--out", "runs/mine"
    )
    found = fedpace("doctor", "runs")
    assert (found.code, found.err) == (0, "")
    assert "Try: fedpace run fedavg --rounds 20" in found.out
    (finding,) = strict(fedpace("doctor", "runs/mine", "--json").out)
    assert finding["check"] == "not_converged"


def test_the_doctor_has_no_patient(fedpace, place):
    (place / "empty").mkdir()
    for folder in ("empty", "nowhere"):
        found = fedpace("doctor", folder)
        assert found.code == 2
        assert len(found.err.splitlines()) == 1
