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

if [ -z "${AMQP:-}" ]; then
  AMQP=127.0.0.1:$(free_port)
  start_server --amqp-port "${AMQP##*:}"
fi
export AMQP

if command -v javac >/dev/null && command -v mvn >/dev/null &&
  mvn -B -q -f "$HERE/java" dependency:copy-dependencies -DoutputDirectory="$WORK/jars"; then
  jms() { java -cp "$WORK/jars/*" "$HERE/java/Jms.java" "$1"; }
  jms "amqp://$AMQP" >"$WORK/java.features" 2>&1
  while read -r name; do
    check "$name" shown java "$name"
  done < <(jms --list)
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
