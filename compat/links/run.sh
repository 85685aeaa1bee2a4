#!/usr/bin/env bash
# A link of entrepot's to a real RabbitMQ, which is started on the loopback interface with a
# directory of its own, killed and started again. PYTHON needs entrepot and pika.
. "$(dirname "$0")/../harness.sh"

RABBITMQ=${RABBITMQ:-$(echo /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server)}
PYTHON=${PYTHON:-$ROOT/.venv/bin/python}

shown() {
  grep -qxF "PASS $1" "$WORK/features" && return
  grep -F "FAIL $1" "$WORK/features" || cat "$WORK/features"
  return 1
}

neighbour() { PYTHONPATH=$ROOT "$PYTHON" "$HERE/neighbour.py" "$@"; }

if [ -x "$RABBITMQ" ]; then
  neighbour "$RABBITMQ" >"$WORK/features" 2>&1
  while read -r name; do
    check "$name" shown "$name"
  done < <(neighbour --list)
else
  echo "SKIP  RabbitMQ: not installed"
fi
report
