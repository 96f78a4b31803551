"""Where a run's clients live: in our own engine, or on Flower's nodes. The result is the same."""

from __future__ import annotations

import json
import logging
import os
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from fedpace.core import ConfigError
from fedpace.engine import cores, task_of
from fedpace.experiments.config import RunConfig
from fedpace.experiments.run import Result, execute, federate, initial_model

if TYPE_CHECKING:  # Flower is optional
    from flwr.app import Context
    from flwr.serverapp import Grid

    from fedpace.flower import Node

Engine = Literal["local", "flower-inprocess", "flower-simulation"]


def run_on(engine: Engine, config: RunConfig, **options: Any) -> Result:
    """Run a config on an engine; ``options`` are those of :func:`execute`."""
    if engine == "local":
        return execute(config, **options)
    if options.get("data") is not None or options.get("model") is not None:
        raise ConfigError(f"engine '{engine}': nodes load data and model by their names, found objects")
    return _in_process(config, **options) if engine == "flower-inprocess" else _simulated(config, **options)


def run_on_grid(config: RunConfig, grid: Grid, timeout: float = 600.0, **options: Any) -> Result:
    """Run a config on the nodes of a grid, from within a ServerApp; a node has ``timeout`` seconds to answer."""
    from fedpace.flower import OnGrid

    return execute(config, executor=OnGrid(grid=grid, timeout=timeout, secure=config.secure), **options)


def node_of(config: RunConfig) -> Node:
    """What a node of the run holds: the data that the config names, and the initial model."""
    return _built(config.model_dump_json())


@lru_cache(maxsize=2)
def _built(config: str) -> Node:
    """Built once per process, however many messages it answers."""
    from fedpace.flower import Node

    found = RunConfig(**json.loads(config))
    federation = federate(found)
    module, task = initial_model(found, federation), task_of(federation, found.task)
    return Node.build(module, federation, found.local, seed=found.seed, task=task, device=found.device)


def _node(config: RunConfig, context: Context) -> Node:
    return node_of(config)


def _in_process(config: RunConfig, **options: Any) -> Result:
    from fedpace.flower import InProcessGrid, client_app

    grid = InProcessGrid(client_app(partial(_node, config)), len(federate(config)))
    return run_on_grid(config, grid, **options)


def _simulated(config: RunConfig, **options: Any) -> Result:
    """Flower's simulation: a Ray actor per core plays the nodes."""
    if find_spec("ray") is None:
        raise ConfigError("Flower's simulation needs Ray: pip install 'flwr[simulation]'")
    if config.device != "cpu":
        raise ConfigError(f"engine 'flower-simulation': expected device = 'cpu', found '{config.device}'; take local")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or else it warns of that default's end
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    from fedpace.flower import client_app

    results: list[Result] = []
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        results.append(run_on_grid(config, grid, **options))

    logging.getLogger("flwr").setLevel(logging.WARNING)  # our own progress is shown
    resources: dict[str, Any] = {"init_args": {"num_cpus": cores()}, "client_resources": {"num_cpus": 1, "num_gpus": 0}}
    run_simulation(server, client_app(partial(_node, config)), len(federate(config)), backend_config=resources)
    return results[0]
