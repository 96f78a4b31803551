#!/usr/bin/env bash
# The SuperLink with TLS and SuperNode authentication: superlink.sh HOST PORT
set -euo pipefail
host=${1:-127.0.0.1} port=${2:-9095}
if (: >"/dev/tcp/$host/$port") 2>/dev/null; then echo "error: port $port of $host is in use" >&2; exit 2; fi
exec flower-superlink --host "$host" --port "$port" --database superlink.db \
  --ssl-ca-certfile certificates/ca.crt --ssl-certfile certificates/server.pem --ssl-keyfile certificates/server.key \
  --enable-supernode-auth --disable-runtime-dependency-installation
