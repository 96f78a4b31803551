"""A model with options, as config writes it: ``{name = "resnet8", norm = "batch"}``, and what it starts from."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import JsonValue, TypeAdapter, ValidationError, model_serializer, model_validator
from torch import nn

from fedpace.core import ConfigError, Settings, did_you_mean, first_error, same_name, shown
from fedpace.models._model import models
from fedpace.models.adapter import Adapter

_KEYWORDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_GIVEN = ("shape", "classes")  # the data decide these
_OTHER = ("head", "weights", "adapter")  # what a table may say beside name and options


class ModelConfig(Settings):
    """A model's name and the keyword arguments that it is built with; an option that it does not take is an error.

    Three keys are no options. ``head`` names the part of the model that personalised methods treat as its head.
    ``weights`` is the safetensors file, or the folder of the run, from which it takes its weights. With an ``adapter``
    only that is trained.
    """

    name: str
    options: dict[str, JsonValue]
    head: str | None = None
    weights: str | None = None
    adapter: Adapter | None = None

    @model_validator(mode="after")
    def _taken(self) -> ModelConfig:
        # Only the annotations of our own models are read: a user's code judges its values itself.
        parameters = inspect.signature(self.factory(), eval_str=":" not in self.name).parameters.values()
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            return self
        taken = {p.name: p.annotation for p in parameters if p.kind in _KEYWORDS and p.name not in _GIVEN}
        for option, value in self.options.items():
            if option not in taken:
                raise ConfigError(f"model '{self.name}': unknown option '{option}'; {did_you_mean(option, taken)}")
            if ":" not in self.name:
                _check_value(self.name, option, value, taken[option])
        return self

    @model_serializer
    def _as_table(self) -> dict[str, Any]:
        other = {key: value for key in _OTHER if (value := getattr(self, key)) is not None}
        return {"name": self.name, **self.options, **other}

    def factory(self) -> Callable[..., nn.Module]:
        """The class or function behind the name."""
        found = models.get(self.name)
        other_class = isinstance(found, type) and not issubclass(found, nn.Module)
        if other_class or not callable(found):
            raise ConfigError(
                f"model '{self.name}': expected a torch.nn.Module or a function that makes one, found {shown(found)}"
            )
        return found


def _check_value(name: str, option: str, value: JsonValue, annotation: Any) -> None:
    """Fail unless an option of one of our own models has the type that the model declares."""
    if get_origin(annotation) is Literal and value not in get_args(annotation):
        near = did_you_mean(str(value), get_args(annotation))
        raise ConfigError(f"model '{name}': unknown {option} '{value}'; {near}")
    try:  # as JSON, where an array is a tuple; strictly, because the model is given the value as it is
        TypeAdapter(annotation).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        detail = error.errors()[0]["msg"]
        raise ConfigError(f"model '{name}': {option}: {detail[:1].lower()}{detail[1:]}, found {shown(value)}") from None


def parse_model(value: Any, default: str | None = None) -> str | ModelConfig:
    """A name as it is, a table as a :class:`ModelConfig`; one with nothing but a name is its name alone.

    A table without a name describes the ``default``. Whether a name alone is known shows when the model is built,
    because the config of a run may name a user's module that no registry holds.

    >>> parse_model({"name": "resnet8", "norm": "batch"})
    ModelConfig(name='resnet8', options={'norm': 'batch'}, head=None, weights=None, adapter=None)
    """
    if isinstance(value, str):
        return same_name(value, models.names()) or value
    table = value.model_dump() if isinstance(value, ModelConfig) else value
    if not isinstance(table, Mapping) or table.get("name", default) is None:
        raise ConfigError(f"model: expected a name or a table with 'name', found {shown(value)}")
    other = {key: table[key] for key in _OTHER if table.get(key) is not None}
    options = {key: value for key, value in table.items() if key not in ("name", *_OTHER)}
    try:
        found = ModelConfig(name=table.get("name", default), options=options, **other)
    except ValidationError as error:
        raise ConfigError(f"model: {first_error(ModelConfig, error)}") from None
    return found if options or other else found.name
