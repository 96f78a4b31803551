"""What ByzFL makes of a few updates, written to ``byzfl.json`` beside this file: an oracle that tests do not need.

``pip install --no-deps byzfl``, then ``python -m tests.aggregation.record_byzfl``.

Where conventions differ, our rule is told so. Krum: ByzFL sums over the N − f − 1 nearest others, Blanchard et al. and
we over N − f − 2, so its f is our ``attackers`` + 1. A trimmed mean is told how many to leave out instead of a share.
"""

import json
from importlib.metadata import version
from pathlib import Path

import torch

VECTORS = Path(__file__).with_name("byzfl.json")


def cases():
    """Honest clients, clients with attackers among them, and so many that the median lies between two."""
    generator = torch.Generator().manual_seed(0)
    for clients, attackers in ((11, 2), (12, 3), (7, 1)):
        updates = torch.randn(clients, 6, generator=generator, dtype=torch.float64) + 1
        yield updates, attackers
        updates = updates.clone()
        updates[:attackers] = 20 * torch.randn(attackers, 6, generator=generator, dtype=torch.float64)
        yield updates, attackers


def main():
    """Record."""
    from benchmarks.byzfl_rules import byzfl

    rules, before = byzfl()
    recorded = []
    for updates, f in cases():
        n = len(updates)
        neighbours = before.NNM(f)(updates.clone())
        found = [
            ({"name": "median"}, rules.Median()(updates)),
            ({"name": "trimmed_mean", "share": f / n}, rules.TrMean(f)(updates)),
            ({"name": "geometric_median"}, rules.GeometricMedian(nu=1e-9, T=5000)(updates)),
            ({"name": "krum", "attackers": f - 1}, rules.Krum(f)(updates)),
            ({"name": "multi_krum", "attackers": f - 1, "selected": n - f}, rules.MultiKrum(f)(updates)),
            (
                {"name": "centred_clipping", "radius": 2.0, "iterations": 3},
                rules.CenteredClipping(L=3, tau=2.0)(updates),
            ),
            ({"name": "nearest_neighbours", "attackers": f}, rules.Average()(neighbours)),
            ({"name": "nearest_neighbours", "attackers": f, "rule": "median"}, rules.Median()(neighbours)),
            (
                {"name": "nearest_neighbours", "attackers": f, "rule": {"name": "trimmed_mean", "share": f / n}},
                rules.TrMean(f)(neighbours),
            ),
            (
                {"name": "norm_clipping", "norm": 2.0, "rule": "median"},
                rules.Median()(before.Clipping(2.0)(updates.clone())),
            ),
            ({"name": "bucketing", "size": 1, "rule": "median"}, rules.Median()(before.Bucketing(1)(updates))),
        ]
        answers = [{"rule": table, "result": result.tolist()} for table, result in found]
        recorded.append({"updates": updates.tolist(), "answers": answers})
    text = json.dumps({"byzfl": version("byzfl"), "cases": recorded})
    VECTORS.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
