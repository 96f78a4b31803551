#!/usr/bin/env bash
# The SuperLink with TLS and SuperNode authentication: superlink.sh HOST PORT
set -euo pipefail
exec flower-superlink --host "${1:-127.0.0.1}" --port "${2:-9095}" --database superlink.db \
  --ssl-ca-certfile certificates/ca.crt --ssl-certfile certificates/server.pem --ssl-keyfile certificates/server.key \
  --enable-supernode-auth --disable-runtime-dependency-installation
