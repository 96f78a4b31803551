"""The server: rounds, aggregation, checkpoints."""

from fedpace.experiments.flower_app import server_app

app = server_app()
