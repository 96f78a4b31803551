#!/usr/bin/env bash
# A certificate authority, a certificate for the SuperLink, and a key pair for each SuperNode: certificates.sh HOST NODES
set -euo pipefail
host=${1:-127.0.0.1} nodes=${2:-3}
mkdir -p certificates && cd certificates
kind=$([[ $host =~ ^[0-9.]+$ ]] && echo IP || echo DNS)
openssl req -x509 -newkey rsa:3072 -nodes -days 365 -subj "/CN=fedpace CA" -keyout ca.key -out ca.crt 2> /dev/null
openssl req -newkey rsa:3072 -nodes -subj "/CN=$host" -keyout server.key -out server.csr 2> /dev/null
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -out server.pem \
  -extfile <(echo "subjectAltName=$kind:$host") 2> /dev/null
for node in $(seq 0 $((nodes - 1))); do
  ssh-keygen -q -t ecdsa -b 384 -N "" -C "" -f node$node
done
chmod 600 ./*.key
