"""The clients: local training on each node's own data."""

from fedpace.experiments.flower_app import client_app

app = client_app()
