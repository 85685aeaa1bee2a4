#!/usr/bin/env bash
# AMQP 1.0 clients of other languages against entrepot: Java's JMS through Apache Qpid JMS, and
# Node's rhea. The first needs a JDK and mvn, the second node and npm.
#
# AMQP=host:port is a broker that is already there, ours or any other.
. "$(dirname "$0")/../harness.sh"

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Programs that show many things; what they say of one is looked up.
shown() {
  grep -qxF "PASS $2" "$WORK/$1.features" && return
  grep -F "FAIL $2" "$WORK/$1.features" || cat "$WORK/$1.features"
  return 1
}

# RabbitMQ's client declares by its own management, which is not here: the queue is there before.
rabbitmqs_client() {
  "$ROOT/.venv/bin/entrepot" queues declare rabbitmqs --http "$HTTP" &&
    java -cp "$WORK/jars/*" "$HERE/java/RabbitMQ.java" "${AMQP%:*}" "${AMQP##*:}" rabbitmqs
}

# The seven steps of examples/jms/Retailer.java, one program after the other.
PROGRAMS="order request cpu disk confirm confirmed"
program_of=(none order request request cpu confirm confirm confirmed) # By step.

retailer() { exec java -cp "$WORK/jars/*:$WORK/classes" Retailer "$1" "amqp://$AMQP" "${@:2}"; }

# What is ready in the queues of a run, as its programs left it.
ready_in() {
  "$ROOT/.venv/bin/entrepot" queues list --json --http "$HTTP" |
    python3 -c 'import json, sys
for line in sys.stdin:
    row = json.loads(line)
    if row["name"].startswith(sys.argv[1]):
        print(row["name"], row["messages_ready"], row["messages_unacknowledged"])' "$1" |
    grep -v " 0 0$" | sort
}

# Kill the program of a step in the middle of that step: the queues are as they were before it
# began. Run it again: both orders are confirmed, once.
killed_in() {
  local prefix="killed-$1-" program before victim
  (retailer stock "$prefix") || return
  for program in $PROGRAMS; do
    before=$(ready_in "$prefix")
    if [ "$program" = "${program_of[$1]}" ]; then
      (retailer "$program" "$prefix" "$1") >"$WORK/stopped" &
      victim=$!
      for _ in $(seq 600); do
        grep -q "^AT $1$" "$WORK/stopped" && break
        sleep 0.1
      done
      grep -q "^AT $1$" "$WORK/stopped" || return
      kill -9 "$victim"
      wait "$victim" 2>/dev/null
      for _ in $(seq 100); do
        [ "$(ready_in "$prefix")" = "$before" ] && break
        sleep 0.1
      done
      if [ "$(ready_in "$prefix")" != "$before" ]; then
        printf 'before:\n%s\nafter:\n%s\n' "$before" "$(ready_in "$prefix")"
        return 1
      fi
    fi
    (retailer "$program" "$prefix") >"$WORK/said-by" || return
  done
  expect "12 false
5 true" cat "$WORK/said-by" && expect "${prefix}stock-cpu 1 0
${prefix}stock-disk 1 0" ready_in "$prefix"
}

if [ -z "${AMQP:-}" ]; then
  AMQP=127.0.0.1:$(free_port)
  HTTP=127.0.0.1:$(free_port)
  start_server --amqp-port "${AMQP##*:}" --http-port "${HTTP##*:}"
fi
export AMQP

if command -v javac >/dev/null && command -v mvn >/dev/null &&
  mvn -B -q -f "$HERE/java" dependency:copy-dependencies -DoutputDirectory="$WORK/jars"; then
  jms() { java -cp "$WORK/jars/*" "$HERE/java/Jms.java" "$1"; }
  jms "amqp://$AMQP" >"$WORK/java.features" 2>&1
  while read -r name; do
    check "$name" shown java "$name"
  done < <(jms --list)
  check "RabbitMQ's client: a thousand messages, published and consumed" rabbitmqs_client
  javac -cp "$WORK/jars/*" -d "$WORK/classes" "$ROOT/examples/jms/Retailer.java"
  for step in 1 2 3 4 5 6 7; do
    check "JMS: the seven steps, killed in step $step: all or nothing" killed_in "$step"
  done
else
  echo "SKIP  java: no JDK, or mvn could not fetch its client"
fi

if command -v node >/dev/null && command -v npm >/dev/null; then
  cp -r "$HERE/node" "$WORK/node"
  if (cd "$WORK/node" && npm install --silent --no-audit --no-fund) >"$WORK/npm" 2>&1; then
    (cd "$WORK/node" && node features.js) >"$WORK/node.features" 2>&1
    while read -r name; do
      check "Node: $name" shown node "$name"
    done < <(cd "$WORK/node" && node features.js --list)
  else
    echo "SKIP  node: rhea could not be fetched"
  fi
fi
report
