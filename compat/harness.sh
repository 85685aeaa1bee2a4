# Sourced by each client's run.sh: starts a broker, runs checks, counts what failed.
#
# A check is a shell function that returns zero when the client got what it should. Checks
# named in tests.allow beside run.sh must pass; another one may fail, and says so when it
# passes, so that the list grows with the broker and never shrinks.
#
# ENTREPOT is the command to start (default: .venv/bin/entrepot of this repository).
# BOOTSTRAP=host:port uses a broker that is already there instead, ours or any other.

set -u
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
HERE=$(cd "$(dirname "$0")" && pwd)
WORK=$(mktemp -d)
SERVER=
FAILED=0

finish() {
  if [ -n "$SERVER" ]; then
    kill "$SERVER" 2>/dev/null
    wait "$SERVER" 2>/dev/null
  fi
  rm -rf "$WORK"
}
trap finish EXIT
trap 'exit 130' INT TERM

# start_server [OPTION...]: of `serve`.
start_server() {
  [ -n "${BOOTSTRAP:-}" ] && return
  # shellcheck disable=SC2086 # The command may have arguments.
  ${ENTREPOT:-$ROOT/.venv/bin/entrepot} serve --data-dir "$WORK/data" \
    --kafka-port 0 --amqp-port off --http-port off --mqtt-port off --stomp-port off --sqs-port off "$@" >"$WORK/stdout" 2>"$WORK/stderr" &
  SERVER=$!
  for _ in $(seq 300); do
    grep -qx ready "$WORK/stdout" && break
    kill -0 "$SERVER" 2>/dev/null || break
    sleep 0.1
  done
  if ! grep -qx ready "$WORK/stdout"; then
    echo "the broker did not start:" >&2
    cat "$WORK/stderr" >&2
    exit 1
  fi
  BOOTSTRAP=$(sed -n 's/.*"host": *"\([^"]*\)".*"port": *\([0-9]*\).*/\1:\2/p' \
    <<<"$(tr -d '\n' <"$WORK/data/endpoints.json")")
}

# End the one that was started; the next one begins with an empty directory.
stop_server() {
  kill "$SERVER"
  wait "$SERVER" 2>/dev/null
  SERVER= BOOTSTRAP=
  rm -rf "$WORK/data"
}

# check NAME FUNCTION [ARGUMENT...]: runs it and prints one line.
check() {
  local name=$1
  shift
  local required=
  grep -qxF "$name" "$HERE/tests.allow" && required=yes
  if "$@" >"$WORK/said" 2>&1; then
    if [ -n "$required" ]; then
      echo "PASS  $name"
    else
      echo "PASS  $name (not in tests.allow yet)"
    fi
  elif [ -n "$required" ]; then
    echo "FAIL  $name"
    tail -20 "$WORK/said" | sed 's/^/      /'
    FAILED=$((FAILED + 1))
  else
    echo "FAIL  $name (not required yet): $(tail -1 "$WORK/said" | cut -c 1-160)"
  fi
}

# expect WANTED COMMAND...: its standard output, byte for byte but for the last line end.
expect() {
  local wanted=$1 found
  shift
  found=$("$@" 2>"$WORK/errors")
  [ "$found" = "$wanted" ] && return
  printf 'wanted:\n%s\nfound:\n%s\n' "$wanted" "$found"
  tail -5 "$WORK/errors"
  return 1
}

report() {
  [ "$FAILED" -eq 0 ] || echo "$FAILED required checks failed"
  exit "$((FAILED > 0))"
}
