#!/usr/bin/env bash
# Entrepot beside RabbitMQ: what a client sees of one it must see of the other.
#
# Both are started on the loopback interface, with directories of their own, and stopped.
# AMQP=host:port is another broker to look at instead of ours. CASES is how many messages are
# routed with each seed, SEED the first of three. PYTHON needs pika.
. "$(dirname "$0")/../harness.sh"

RABBITMQ=${RABBITMQ:-$(echo /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server)}
PYTHON=${PYTHON:-$ROOT/.venv/bin/python}
PROCESSES=

finish() {
  local process
  for process in $PROCESSES; do
    kill "$process" 2>/dev/null
    wait "$process" 2>/dev/null
  done
  rm -rf "$WORK"
}

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# until_says FILE WORDS PROCESS: or says what it said instead, and gives up.
until_says() {
  for _ in $(seq 600); do
    grep -q "$2" "$WORK/$1" && return
    kill -0 "$3" 2>/dev/null || break
    sleep 0.1
  done
  echo "the broker did not start:" >&2
  tail -n 20 "$WORK/$1" "$WORK/$1.errors" >&2
  exit 1
}

start_entrepot() {
  AMQP=127.0.0.1:$(free_port)
  : >"$WORK/entrepot"
  # shellcheck disable=SC2086 # The command may have arguments.
  ${ENTREPOT:-$ROOT/.venv/bin/entrepot} serve --data-dir "$WORK/ours" --kafka-port 0 \
    --amqp-port "${AMQP##*:}" --http-port off --mqtt-port off --stomp-port off --sqs-port off >"$WORK/entrepot" 2>"$WORK/entrepot.errors" &
  PROCESSES+=" $!"
  until_says entrepot '^ready$' $!
}

start_rabbitmq() {
  local port
  port=$(free_port)
  : >"$WORK/rabbitmq"
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
  local mapper=$!
  "$RABBITMQ" >"$WORK/rabbitmq" 2>"$WORK/rabbitmq.errors" &
  PROCESSES+=" $! $mapper"
  until_says rabbitmq 'broker\.\.\. completed' $!
  PEER=127.0.0.1:$port
}

routes_alike() {
  PYTHONPATH=$ROOT/src "$PYTHON" "$HERE/routing.py" "$PEER" "$AMQP" \
    --cases "${CASES:-10000}" --seed "$1" | tee -a "$WORK/summary"
  return "${PIPESTATUS[0]}"
}

# All cases run once; what was said of one is looked up.
behaves_alike() {
  grep -qxF "PASS  $1" "$WORK/behaviour" && return
  grep -F "DIFF  $1: " "$WORK/behaviour" || tail -5 "$WORK/behaviour"
  return 1
}

[ -x "$RABBITMQ" ] || { echo "SKIP  rabbitmq: not installed"; exit 0; }
[ -n "${AMQP:-}" ] || start_entrepot
start_rabbitmq
"$PYTHON" "$HERE/behaviour.py" "$PEER" "$AMQP" >"$WORK/behaviour" 2>&1
while read -r name; do
  check "$name" behaves_alike "$name"
done < <("$PYTHON" "$HERE/behaviour.py" --list)
for number in 0 1 2; do
  check "messages go to the same queues, seed $number" routes_alike "$((${SEED:-1} + number))"
done
sed 's/^/      /' "$WORK/summary"
report
