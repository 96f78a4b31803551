"""The server: FedAvg, or one of fedpace's strategies in its place."""

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits_app.task import build_model
from fedpace.flower import GradientMasked  # the first changed line

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds and save the model."""
    if context.run_config["strategy"] == "fedavg":
        strategy = FedAvg(fraction_evaluate=1.0)
    else:
        strategy = GradientMasked(tau=0.4, fraction_evaluate=1.0)  # the second one
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(build_model().state_dict()),
        num_rounds=context.run_config["num-server-rounds"],
    )
    torch.save(result.arrays.to_torch_state_dict(), "final_model.pt")
