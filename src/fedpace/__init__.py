"""Federated learning for clients that disagree."""

__version__ = "0.1.0"
