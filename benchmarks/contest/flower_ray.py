"""Flower's simulation on Ray: one actor per worker, FedAvg, and a ClientApp that keeps its module between messages."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import torch
from benchmarks.contest.gate import Gate
from benchmarks.contest.setups import EVALUATION_BATCH, Job
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn
from torch.nn import functional as F

ENDLESS = 10**6


class Gated(FedAvg):
    """Lets every round wait at the gate."""

    def __init__(self, gate: Gate, **settings: Any) -> None:
        super().__init__(**settings)
        self._gate = gate

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Before the round."""
        self._gate()
        return super().configure_train(server_round, arrays, config, grid)


def run(job: Job, gate: Gate) -> None:
    """Bring the simulation up, with as many nodes as clients."""
    set_up = job.set_up
    client, server = ClientApp(), ServerApp()

    @client.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        return trained(job, message, int(context.node_config["partition-id"]))

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = Gated(
            gate,
            fraction_train=(set_up.cohort + 0.5) / set_up.clients if set_up.cohort < set_up.clients else 1.0,
            fraction_evaluate=0.0,
            min_train_nodes=set_up.cohort,
            min_available_nodes=set_up.clients,
        )
        evaluate = (lambda number, arrays: evaluated(job, arrays)) if set_up.evaluated else None
        initial = ArrayRecord(set_up.module().state_dict())
        strategy.start(grid=grid, initial_arrays=initial, num_rounds=ENDLESS, evaluate_fn=evaluate)

    resources = {"num_cpus": 1, "num_gpus": 0.0}
    init = {"num_cpus": job.workers, "include_dashboard": False, "log_to_driver": False}
    run_simulation(server, client, set_up.clients, backend_config={"client_resources": resources, "init_args": init})


@lru_cache(maxsize=1)
def module(job: Job) -> nn.Module:
    """One for each process."""
    return job.set_up.module()


def trained(job: Job, message: Message, client: int) -> Message:
    """A ClientApp's answer to a message."""
    model, set_up = module(job), job.set_up
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), set_up.learning_rate)
    inputs, labels = (whole[job.of_client(client)] for whole in job.tensors())
    for positions in torch.randperm(len(labels)).split(set_up.batch):
        optimizer.zero_grad()
        F.cross_entropy(model(inputs[positions]), labels[positions]).backward()
        optimizer.step()
    records = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(labels)})}
    return Message(RecordDict(records), reply_to=message)


def evaluated(job: Job, arrays: ArrayRecord) -> MetricRecord:
    """The server's evaluation."""
    model = module(job)
    model.load_state_dict(arrays.to_torch_state_dict())
    model.eval()
    inputs, labels = (whole[job.test] for whole in job.tensors())
    correct = 0
    with torch.inference_mode():
        for batch, targets in zip(inputs.split(EVALUATION_BATCH), labels.split(EVALUATION_BATCH), strict=True):
            correct += int((model(batch).argmax(1) == targets).sum())
    return MetricRecord({"accuracy": correct / len(labels)})
