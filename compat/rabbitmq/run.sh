#!/usr/bin/env bash
# Our router against an AMQP broker: do they send messages to the same queues, and refuse alike?
#
# AMQP=host:port is a broker that is already there, ours or any other. Without it, a RabbitMQ that
# is installed is started on the loopback interface with directories of its own, and stopped.
# CASES is how many messages, SEED the first of three seeds. PYTHON needs pika.
. "$(dirname "$0")/../harness.sh"

RABBITMQ=${RABBITMQ:-$(echo /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server)}
EPMD=

finish() {
  local process
  for process in $SERVER $EPMD; do
    kill "$process" 2>/dev/null
    wait "$process" 2>/dev/null
  done
  rm -rf "$WORK"
}

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

start_rabbitmq() {
  local port
  port=$(free_port)
  : >"$WORK/stdout"
  mkdir -p "$WORK/home" "$WORK/log" "$WORK/data" "$WORK/generated"
  export HOME=$WORK/home ERL_CRASH_DUMP=/dev/null
  export ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT RABBITMQ_DIST_PORT
  ERL_EPMD_PORT=$(free_port)
  RABBITMQ_DIST_PORT=$(free_port)
  export RABBITMQ_NODENAME=routing$$@localhost
  export RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT=$port
  export RABBITMQ_LOG_BASE=$WORK/log RABBITMQ_MNESIA_BASE=$WORK/data
  export RABBITMQ_GENERATED_CONFIG_DIR=$WORK/generated RABBITMQ_PID_FILE=$WORK/pid
  export RABBITMQ_CONF_ENV_FILE=$WORK/environment RABBITMQ_CONFIG_FILE=$WORK/rabbitmq.conf
  export RABBITMQ_ENABLED_PLUGINS_FILE=$WORK/enabled_plugins
  : >"$WORK/environment" >"$WORK/rabbitmq.conf"
  echo '[rabbitmq_consistent_hash_exchange].' >"$WORK/enabled_plugins"
  epmd & # By itself it would be a daemon whose number nobody knows.
  EPMD=$!
  "$RABBITMQ" >"$WORK/stdout" 2>"$WORK/stderr" &
  SERVER=$!
  for _ in $(seq 600); do
    grep -q 'broker\.\.\. completed' "$WORK/stdout" && break
    kill -0 "$SERVER" 2>/dev/null || break
    sleep 0.1
  done
  if ! grep -q 'broker\.\.\. completed' "$WORK/stdout"; then
    echo "the broker did not start:" >&2
    tail -20 "$WORK/stdout" "$WORK/stderr" >&2
    exit 1
  fi
  AMQP=127.0.0.1:$port
}

routes_alike() {
  PYTHONPATH=$ROOT/src "${PYTHON:-$ROOT/.venv/bin/python}" "$HERE/routing.py" "$AMQP" \
    --cases "${CASES:-10000}" --seed "$1" | tee -a "$WORK/summary"
  return "${PIPESTATUS[0]}"
}

if [ -z "${AMQP:-}" ]; then
  [ -x "$RABBITMQ" ] || { echo "SKIP  rabbitmq: not installed, and no AMQP=host:port"; exit 0; }
  start_rabbitmq
fi
for number in 0 1 2; do
  check "messages go to the same queues, seed $number" routes_alike "$((${SEED:-1} + number))"
done
sed 's/^/      /' "$WORK/summary"
report
