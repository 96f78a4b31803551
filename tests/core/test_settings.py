from typing import Annotated

import pytest
import torch
from pydantic import Field, SerializeAsAny, ValidationError

from fedpace.aggregation import Harmonised, Masked, Mean, Rule, rules
from fedpace.core import ConfigError, FedpaceError, Named, Registry, Settings, by_name, errors, parse


class Shape(Named):
    pass


shapes: Registry[Shape] = Registry("shape", Shape)


@shapes.register("circle")
class Circle(Shape):
    radius: float = Field(1.0, gt=0)


@shapes.register("square")
class Square(Shape):
    side: int


class Oval(Circle):
    """Not registered: known by its import path, though its parent has a name."""

    stretch: float = 2.0


class Half(Mean):
    """A user's own rule."""

    share: float = 0.5


def message_of(registry, value):
    with pytest.raises(ConfigError) as caught:
        parse(registry, value)
    return str(caught.value)


# Parsing -------------------------------------------------------------------------------------------------------------


def test_a_name_alone_means_defaults():
    assert parse(shapes, "circle") == Circle(radius=1.0)


def test_a_table_gives_parameters_and_is_left_alone():
    table = {"name": "square", "side": 3}
    assert parse(shapes, table) == Square(side=3)
    assert table == {"name": "square", "side": 3}


def test_an_object_stands_for_itself():
    square = Square(side=2)
    assert parse(shapes, square) is square


def test_a_table_without_a_name_means_the_default():
    assert parse(shapes, {"radius": 2.0}, default="circle") == Circle(radius=2.0)
    assert parse(shapes, {"name": "square", "side": 1}, default="circle") == Square(side=1)


def test_registry_knows_its_names():
    assert shapes.names() == ["circle", "square"]
    assert shapes.get("square") is Square
    assert Circle.registered_name() == "circle"


def test_an_import_path_needs_no_registration():
    path = Half.registered_name()
    assert path == f"{__name__}:Half"
    assert rules.get(path) is Half
    assert parse(rules, {"name": path, "share": 0.25}) == Half(share=0.25)
    assert parse(rules, Half(share=0.1).model_dump()) == Half(share=0.1)


def test_an_unregistered_child_does_not_answer_to_its_parents_name():
    assert Oval.registered_name() == f"{__name__}:Oval"
    assert parse(shapes, Oval(stretch=3.0).model_dump()) == Oval(stretch=3.0)


@pytest.mark.parametrize("rule", [*(rules.get(name)() for name in rules.names()), Masked(tau=0.25)], ids=repr)
def test_every_rule_survives_being_written(rule):
    for table in (rule.model_dump(), rule.model_dump(mode="json")):
        assert next(iter(table)) == "name"
        assert parse(rules, table) == rule
        assert type(parse(rules, table)) is type(rule)


MASKED = {"name": "masked", "tau": 0.4, "agreement_weights": "uniform", "threshold": "inclusive"}


def test_what_is_written():
    assert Masked(tau=0.25).model_dump() == {**MASKED, "tau": 0.25}
    assert Harmonised(negative="keep").model_dump() == {"name": "harmonised", "negative": "keep"}


class Run(Settings):
    rule: SerializeAsAny[Annotated[Rule, by_name(rules, "masked")]] = Mean()
    rounds: int = Field(10, ge=1)


@pytest.mark.parametrize("given_rule", ["masked", {"name": "masked", "tau": 0.4}, {"tau": 0.4}, Masked()], ids=repr)
def test_a_field_takes_a_name_a_table_or_an_object(given_rule):
    run = Run(rule=given_rule)
    assert run.rule == Masked(tau=0.4)
    assert run.model_dump() == {"rule": MASKED, "rounds": 10}
    assert Run(**run.model_dump()) == run


def test_a_wrong_name_in_a_field_is_the_same_error():
    with pytest.raises(ConfigError, match="unknown rule 'maskd'; did you mean 'masked'"):
        Run(rule="maskd")


def test_settings_are_immutable():
    with pytest.raises(ValidationError, match="frozen"):
        Masked().tau = 0.5


# Errors --------------------------------------------------------------------------------------------------------------


def test_unknown_name_names_the_nearest():
    assert message_of(rules, "dampend") == "unknown rule 'dampend'; did you mean 'dampened'?"


def test_unknown_name_without_a_near_one_lists_all():
    assert message_of(shapes, "zzz") == "unknown shape 'zzz'; known: circle, square"


def test_unknown_key_names_the_nearest():
    assert message_of(rules, {"name": "masked", "tua": 1}) == "rule 'masked': unknown key 'tua'; did you mean 'tau'?"


def test_unknown_key_of_a_thing_without_parameters_says_so():
    message = message_of(rules, {"name": "mean", "tau": 0.4})
    assert message.startswith("rule 'mean': unknown key 'tau'; ")
    assert not message.rstrip().endswith(":"), "the list of known keys is empty, so the message ends in the air"


def test_out_of_range():
    expected = "rule 'masked': tau: input should be less than or equal to 1, found 1.5"
    assert message_of(rules, {"name": "masked", "tau": 1.5}) == expected
    assert "greater than or equal to 0, found -0.1" in message_of(rules, {"name": "masked", "tau": -0.1})


def test_missing_parameter():
    assert message_of(shapes, "square") == "shape 'square': side: field required"


def test_wrong_choice_lists_the_choices():
    message = message_of(rules, {"name": "harmonised", "negative": "drop"})
    assert message == "rule 'harmonised': negative: input should be 'clamp' or 'keep', found 'drop'"


def test_not_a_number():
    with pytest.raises(ConfigError, match=r"tau: .*found nan"):
        parse(rules, {"name": "masked", "tau": float("nan")})


@pytest.mark.parametrize("value", [5, None, ["masked"], {"tau": 0.4}, {}], ids=repr)
def test_neither_name_nor_table(value):
    assert message_of(rules, value) == f"rule: expected a name or a table with 'name', found {value!r}"


@pytest.mark.parametrize(
    "path",
    ["no_such_module:Thing", "json:NoSuchThing", "json:", ":Thing", ".relative:Thing", "json:JSONDecoder.nope"],
)
def test_a_path_that_cannot_be_imported(path):
    assert message_of(rules, path).startswith(f"rule '{path}': cannot be imported (")


@pytest.mark.parametrize("path", ["math:pi", "json:JSONDecoder", "os:getcwd", f"{__name__}:Circle"])
def test_a_path_to_something_else(path):
    assert message_of(rules, path).startswith(f"rule '{path}'")


@pytest.mark.parametrize(
    "value",
    [
        "dampend",
        "zzz",
        "no_such_module:Thing",
        "mea\nn",
        {"name": "masked", "tau": 7},
        {"name": "masked", "tau": "a\nb"},
        {"name": "masked", "ta\nu": 1},
        {"name": "masked", "tau": torch.zeros(2, 2)},
        {"name": "masked", "tau": "x", "other": 1},
        torch.zeros(2, 2),
    ],
    ids=repr,
)
def test_every_message_is_one_line(value):
    assert len(message_of(rules, value).splitlines()) == 1


def test_every_error_is_caught_as_one_kind():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) >= 7
    assert all(issubclass(kind, FedpaceError) for kind in kinds)
    assert not issubclass(FedpaceError, ValueError)  # pydantic would swallow it
