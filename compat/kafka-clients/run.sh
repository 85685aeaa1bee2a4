#!/usr/bin/env bash
# Kafka clients of other languages against entrepot: segmentio/kafka-go, confluent-kafka-go and
# kafkajs. Needs go and a C compiler; the last needs node and npm.
. "$(dirname "$0")/../harness.sh"

# A program says what came of each of its checks; what it says of one is looked up.
shown() {
  grep -qxF "PASS $2" "$WORK/$1.features" && return
  grep -F "FAIL $2" "$WORK/$1.features" || cat "$WORK/$1.features"
  return 1
}
# checks CLIENT COMMAND...: runs it, then each of the checks it lists.
checks() {
  local client=$1 name
  shift
  timeout 300 "$@" >"$WORK/$client.features" 2>&1
  while read -r name; do
    check "$client: $name" shown "$client" "$name"
  done < <("$@" --list)
}

start_server
export BOOTSTRAP
if command -v go >/dev/null; then
  mkdir "$WORK/bin"
  (cd "$HERE/go" && GOFLAGS=-mod=readonly go build -o "$WORK/bin/" ./...) || exit 1
  checks kafka-go "$WORK/bin/kafka_go"
  checks confluent-kafka-go "$WORK/bin/confluent"
else
  echo "SKIP  kafka-go, confluent-kafka-go: no go on the path"
fi
if command -v node >/dev/null && command -v npm >/dev/null; then
  cp -r "$HERE/node" "$WORK/node"
  if (cd "$WORK/node" && npm install --silent --no-audit --no-fund) >"$WORK/npm" 2>&1; then
    cd "$WORK/node" && checks kafkajs node features.js
  else
    echo "SKIP  kafkajs: it could not be fetched"
  fi
else
  echo "SKIP  kafkajs: no node and npm on the path"
fi
report
