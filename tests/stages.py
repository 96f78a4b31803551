"""Stages of one exchange, in one call."""

from fedpace.server import Exchange, Stage


def stage_with(name="fedavg", first=0, last=None, search=None, **exchange):
    return Stage(name=name, first=first, last=last, search=search, exchanges=(Exchange(**exchange),))


def altered(stage, **exchange):
    """The stage with other settings of its exchange."""
    return stage.model_copy(update={"exchanges": (stage.exchanges[0].model_copy(update=exchange),)})
