# $project

fedpace's preset `$preset` as a Flower app. $description

    flwr run .                # in Flower's simulation
    flwr run . my-superlink   # on a SuperLink whose SuperNodes have partition-id 0, 1, 2, … in their node config

Change `[tool.flwr.app.config]` in `pyproject.toml`, or pass `--run-config 'preset="gma"'`. The run folder `out` lies on
the machine of the ServerApp. Started again with the same `out`, the run goes on after its last finished round.
