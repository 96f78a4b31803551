"""What ``benchmarks/peers.py`` compares: set-ups, and one file for each contestant.

A contestant runs in a process of its own, started by ``__main__``, and waits at a gate before each round.
"""
