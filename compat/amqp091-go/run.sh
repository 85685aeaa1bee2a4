#!/usr/bin/env bash
# The integration tests of amqp091-go, RabbitMQ's Go client, unchanged, against entrepot.
# Needs go, which fetches the module with its tests.
#
# AMQP=host:port is a broker that is already there, ours or any other. The tests of recovery
# close connections over the management port, and look for it at 15672: it must be free.
. "$(dirname "$0")/../harness.sh"

VERSION=v1.16.0
MODULE=github.com/rabbitmq/amqp091-go
TESTED="connection_test.go integration_test.go recovery_test.go" # Those that need a broker.

command -v go >/dev/null || { echo "SKIP  amqp091-go: no go on the path"; exit 0; }

fetch_module() {
  (cd "$WORK" && go mod init fetching >/dev/null 2>&1 && go get "$MODULE@$VERSION" >&2) || return
  cp -r "$(go env GOMODCACHE)/$MODULE@$VERSION" "$WORK/module" && chmod -R u+w "$WORK/module"
}

start_broker() {
  # shellcheck disable=SC2086 # The command may have arguments.
  ${ENTREPOT:-$ROOT/.venv/bin/entrepot} serve --data-dir "$WORK/data" --kafka-port off \
    --amqp-port 0 --http-port 15672 --mqtt-port off --stomp-port off --sqs-port off >"$WORK/stdout" 2>"$WORK/stderr" &
  SERVER=$!
  for _ in $(seq 300); do
    grep -qx ready "$WORK/stdout" && break
    kill -0 "$SERVER" 2>/dev/null || break
    sleep 0.1
  done
  AMQP=$(awk '$1 == "amqp" { print $2 }' "$WORK/stdout")
  [ -n "$AMQP" ] && return
  echo "the broker did not start:" >&2
  cat "$WORK/stderr" >&2
  exit 1
}

names() {
  (cd "$WORK/module" && sed -n 's/^func \(Test[A-Za-z0-9_]*\)(t .*/\1/p' $TESTED)
}
passed() {
  grep -q -- "^--- PASS: $1 " "$WORK/tested" && return
  sed -n "/^=== RUN   $1\$/,/^--- /p" "$WORK/tested"
  return 1
}

fetch_module || { echo "SKIP  amqp091-go: the module could not be fetched"; exit 0; }
[ -n "${AMQP:-}" ] || start_broker
(cd "$WORK/module" && AMQP_URL="amqp://guest:guest@$AMQP/" go test -count=1 -tags integration \
  -timeout 15m -v -run "^($(names | paste -sd '|'))\$" .) >"$WORK/tested" 2>&1
for name in $(names); do
  check "$name" passed "$name"
done
report
