#!/usr/bin/env bash
# Tell the flwr command about the SuperLink, and the SuperLink about its SuperNodes: connect.sh HOST PORT NODES
set -euo pipefail
home=${FLWR_HOME:-$HOME/.flwr}
mkdir -p "$home"
cat >> "$home/config.toml" << EOF

[superlink.fedpace]
address = "${1:-127.0.0.1}:${2:-9095}"
root-certificates = "$PWD/certificates/ca.crt"
EOF
for node in $(seq 0 $((${3:-3} - 1))); do
  flwr supernode register "certificates/node$node.pub" fedpace
done
