#!/usr/bin/env bash
# One SuperNode, for one client: supernode.sh HOST PORT CLIENT CLIENTS OWN_PORT
set -euo pipefail
if (: >"/dev/tcp/127.0.0.1/$5") 2>/dev/null; then echo "error: port $5 is in use" >&2; exit 2; fi
exec flower-supernode --superlink "${1:-127.0.0.1}:${2:-9095}" --root-certificates certificates/ca.crt \
  --auth-supernode-private-key "certificates/node$3" --node-config "partition-id=$3 num-partitions=$4" --port "$5" \
  --ssl-ca-certfile certificates/ca.crt --ssl-certfile certificates/server.pem --ssl-keyfile certificates/server.key
