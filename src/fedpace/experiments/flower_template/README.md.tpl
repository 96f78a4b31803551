# $project

fedpace's preset `$preset` as a Flower app. $description

    export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1         # run in the environment that fedpace is installed in
    flwr run . --stream --federation-config 'num-supernodes=$clients'   # in Flower's simulation
    flwr run . my-superlink   # on a SuperLink whose SuperNodes have partition-id 0, 1, 2, … in their node config

Change `[tool.flwr.app.config]` in `pyproject.toml`, or pass `--run-config 'preset="gma"'`. The run folder `out` lies on
the machine of the ServerApp. Started again with the same `out`, the run goes on after its last finished round.
