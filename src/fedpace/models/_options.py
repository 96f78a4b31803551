"""A model with options, as config writes it: ``{name = "resnet8", norm = "batch"}``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import JsonValue, ValidationError, model_serializer, model_validator
from torch import nn

from fedpace.core import ConfigError, Settings, did_you_mean, first_error
from fedpace.models._model import models

_KEYWORDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_GIVEN = ("shape", "classes")  # the data decide these


class ModelConfig(Settings):
    """A model's name and the keyword arguments that it is built with; an option that it does not take is an error."""

    name: str
    options: dict[str, JsonValue]

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
            choices = get_args(taken[option]) if get_origin(taken[option]) is Literal else (value,)
            if value not in choices:
                near = did_you_mean(str(value), choices)
                raise ConfigError(f"model '{self.name}': unknown {option} '{value}'; {near}")
        return self

    @model_serializer
    def _as_table(self) -> dict[str, Any]:
        return {"name": self.name, **self.options}

    def factory(self) -> Callable[..., nn.Module]:
        """The class or function behind the name."""
        found = models.get(self.name)
        if not callable(found):
            raise ConfigError(f"model '{self.name}': expected a class or a function, found {found!r}")
        return found


def parse_model(value: Any, default: str | None = None) -> str | ModelConfig:
    """A name as it is, a table as a :class:`ModelConfig`; one without options is its name alone.

    A table without a name describes the ``default``. Whether a name alone is known shows when the model is built,
    because the config of a run may name a user's module that no registry holds.

    >>> parse_model({"name": "resnet8", "norm": "batch"})
    ModelConfig(name='resnet8', options={'norm': 'batch'})
    """
    if isinstance(value, str):
        return value
    table = value.model_dump() if isinstance(value, ModelConfig) else value
    if not isinstance(table, Mapping) or table.get("name", default) is None:
        raise ConfigError(f"model: expected a name or a table with 'name', found {value!r}")
    options = {key: value for key, value in table.items() if key != "name"}
    try:
        found = ModelConfig(name=table.get("name", default), options=options)
    except ValidationError as error:
        raise ConfigError(f"model: {first_error(ModelConfig, error)}") from None
    return found if options else found.name
