#!/usr/bin/env bash
# AMQP clients of other languages against entrepot: Go's amqp091-go with tutorials one and two in
# their four versions, and Node's amqplib; and a queue that is written from Python and read from
# both and from Java. Needs go; amqplib needs node and npm, the last all of them, pika and mvn.
#
# AMQP=host:port is a broker that is already there, ours or any other; then nothing is killed
# but workers. Otherwise ours is started, and some checks kill it too.
. "$(dirname "$0")/../harness.sh"

command -v go >/dev/null || { echo "SKIP  amqp-clients: no go on the path"; exit 0; }

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# On the same data and the same port as before.
start_broker() {
  : >"$WORK/stdout"
  # shellcheck disable=SC2086 # The command may have arguments.
  ${ENTREPOT:-$ROOT/.venv/bin/entrepot} serve --data-dir "$WORK/data" --kafka-port 0 \
    --amqp-port "${AMQP##*:}" --http-port off --mqtt-port off --stomp-port off --sqs-port off >"$WORK/stdout" 2>>"$WORK/stderr" &
  SERVER=$!
  for _ in $(seq 300); do
    grep -qx ready "$WORK/stdout" && return
    kill -0 "$SERVER" 2>/dev/null || break
    sleep 0.1
  done
  echo "the broker did not start:" >&2
  cat "$WORK/stderr" >&2
  exit 1
}

kill_broker() {
  kill -9 "$SERVER" 2>/dev/null
  wait "$SERVER" 2>/dev/null
}

# Programs that run beside the check: `begin NAME COMMAND...`, and what NAME has said.
begin() {
  local name=$1
  shift
  "$@" >"$WORK/$name.said" 2>"$WORK/$name.errors" &
  echo $! >"$WORK/$name.pid"
  until_said "$name" waiting
}
until_said() {
  for _ in $(seq 200); do
    grep -qxF "$2" "$WORK/$1.said" && return
    sleep 0.05
  done
  echo "$1 never said: $2. It said:"
  cat "$WORK/$1.said" "$WORK/$1.errors"
  return 1
}
end() { # By force: that is how workers die.
  local each
  for each in "$@"; do
    kill -9 "$(cat "$WORK/$each.pid")" 2>/dev/null
    wait "$(cat "$WORK/$each.pid")" 2>/dev/null
  done
}
said() { cat "$WORK/$1.said"; }
never_said() { ! grep -qF "$2" "$WORK/$1.said"; }

# --- Go, tutorial one

hello() {
  begin receiver receive || return
  expect 'sent Hello World!' send && until_said receiver 'received Hello World!'
  local found=$?
  end receiver
  return $found
}

# --- Go, tutorial two, in four versions

round_robin() {
  local queue=robin-$$ found=0
  begin one worker_v1 "$queue" && begin two worker_v1 "$queue" || return
  new_task_v1 "$queue" a b c d e f
  for _ in $(seq 100); do
    [ "$(cat "$WORK/one.said" "$WORK/two.said" | grep -c done)" = 6 ] && break
    sleep 0.05
  done
  [ "$(said one | grep -c done)" = 3 ] && [ "$(said two | grep -c done)" = 3 ] || found=1
  end one two
  return $found
}
automatic_loses() {
  local queue=automatic-$$
  begin one worker_v1 "$queue" || return
  new_task_v1 "$queue" 'long ..............................' next
  until_said one 'received long ..............................' || return
  end one
  begin two worker_v1 "$queue" || return
  sleep 0.5
  local found=0
  never_said two received || found=1
  end two
  return $found
}
explicit_redelivers() {
  local queue=explicit-$$ found=0
  begin one worker_v2 "$queue" || return
  new_task_v1 "$queue" 'long ..............................' next
  until_said one 'received long ..............................' || return
  begin two worker_v2 "$queue" || return
  end one
  until_said two 'received long ..............................' || found=1
  end two
  return $found
}
prefetch_is_fair() {
  local queue=fair-$$ found=0
  begin busy worker_v4 "$queue" || return
  new_task_v3 "$queue" 'long ..............................'
  until_said busy 'received long ..............................' || return
  begin quick worker_v4 "$queue" || return
  new_task_v3 "$queue" a b c d
  until_said quick 'done d' || found=1
  [ "$(said quick | grep -c done)" = 4 ] && never_said busy 'received a' || found=1
  end busy quick
  return $found
}
durable_survives() {
  local queue=durable-$$ found=0
  new_task_v3 "$queue" a b c
  confirmed_elsewhere
  kill_broker
  start_broker
  begin one worker_v3 "$queue" || return
  until_said one 'done c' || found=1
  expect $'done a\ndone b\ndone c' grep '^done' "$WORK/one.said" || found=1
  end one
  return $found
}
transient_does_not() {
  local queue=transient-$$ found=0
  new_task_v1 "$queue" lost
  confirmed_elsewhere
  kill_broker
  start_broker
  begin one worker_v2 "$queue" || return
  sleep 0.5
  never_said one received || found=1
  end one
  return $found
}
# The task's program does not wait for confirms; another's confirms come after its messages.
confirmed_elsewhere() { features >/dev/null 2>&1; }

# Programs that show many things; what they say of one is looked up.
shown() {
  grep -qxF "PASS $2" "$WORK/$1.features" && return
  grep -F "FAIL $2" "$WORK/$1.features" || cat "$WORK/$1.features"
  return 1
}

# One queue: a message for each language.
python_to_all() {
  local queue=languages-$$ python=${PYTHON:-$ROOT/.venv/bin/python}
  "$python" "$HERE/put.py" "$queue" 'for Go' 'for Node' 'for Java' || return
  expect 'for Go' take "$queue" && expect 'for Node' node "$WORK/node/take.js" "$queue" &&
    expect 'for Java' java -cp "$WORK/jars/*" "$HERE/java/Take.java" "$queue"
}

mkdir "$WORK/bin"
(cd "$HERE/go" && GOFLAGS=-mod=readonly go build -o "$WORK/bin/" ./...) || exit 1
PATH=$WORK/bin:$PATH
OURS=
if [ -z "${AMQP:-}" ]; then
  OURS=yes
  AMQP=127.0.0.1:$(free_port)
  start_broker
fi
export AMQP_URL=amqp://guest:guest@$AMQP/

check "Go, tutorial one" hello
check "Go, tutorial two: tasks are dealt out" round_robin
check "Go, tutorial two: automatic acknowledgement loses a task on a crash" automatic_loses
check "Go, tutorial two: explicit acknowledgement redelivers it" explicit_redelivers
check "Go, tutorial two: prefetch, a busy worker gets nothing new" prefetch_is_fair
if [ -n "$OURS" ]; then
  check "Go, tutorial two: durable survives kill -9" durable_survives
  check "Go, tutorial two: what is not durable does not" transient_does_not
fi
features >"$WORK/go.features" 2>&1
while read -r name; do
  check "Go: $name" shown go "$name"
done < <(features -list)

if command -v node >/dev/null && command -v npm >/dev/null; then
  cp -r "$HERE/node" "$WORK/node"
  if (cd "$WORK/node" && npm install --silent --no-audit --no-fund) >"$WORK/npm" 2>&1; then
    (cd "$WORK/node" && node features.js) >"$WORK/node.features" 2>&1
    while read -r name; do
      check "Node: $name" shown node "$name"
    done < <(cd "$WORK/node" && node features.js --list)
    if command -v javac >/dev/null && command -v mvn >/dev/null &&
      mvn -B -q -f "$HERE/java" dependency:copy-dependencies -DoutputDirectory="$WORK/jars"; then
      check "one queue, written from Python, read from Go, Node and Java" python_to_all
    else
      echo "SKIP  java: no JDK, or mvn could not fetch its client"
    fi
  else
    echo "SKIP  node: amqplib could not be fetched"
  fi
fi
report
