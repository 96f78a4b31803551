"""Whether clients, their data and the schedule go together, before a round is run."""

from __future__ import annotations

from fedpace.client import ClientWork
from fedpace.core import ConfigError, DataError, Layout
from fedpace.data import Federation
from fedpace.server import Schedule


def check_personal(local: ClientWork, schedule: Schedule, federation: Federation, layout: Layout) -> None:
    """Personal models need tests of their own, and are not what gradients and searches are about."""
    if local.evaluation() is not None and federation.client_tests is None:
        raise ConfigError(
            f"'{local.registered_name()}' gives each client a model of its own, to be measured on its own test "
            "examples: expected data.partition.test_share above 0, found 0"
        )
    for stage in (schedule.base, *schedule.stages):
        whole = stage.search is not None or any(exchange.sends == "gradient" for exchange in stage.exchanges())
        if whole and layout.personal:
            raise ConfigError(
                f"stage '{stage.name}' asks for gradients of the whole model, but with "
                f"'{local.registered_name()}' {', '.join(sorted(layout.personal))} never leave a client"
            )


def check_classes(local: ClientWork, federation: Federation) -> list[str]:
    """Refuse data of one class; a warning if that is all that some clients with a model of their own have."""
    counts = federation.counts()
    classes = [name for name, held in zip(federation.classes, counts.sum(axis=0), strict=True) if held]
    if len(classes) == 1:
        raise DataError(f"{federation.name}: expected two classes or more, found only '{classes[0]}'")
    number = sum(int((own > 0).sum()) == 1 for own in counts)
    if not number or local.evaluation() is None:
        return []
    whom = f"{number} of {len(federation)} clients train"
    return [f"{whom} on one class only: to answer it always is all that their models can learn"]
