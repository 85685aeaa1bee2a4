#!/usr/bin/env bash
# librdkafka's own tests, unchanged, against entrepot. Needs a C and C++ compiler, make, and
# git to fetch the source, or LIBRDKAFKA=directory with it. Building it takes minutes.
#
# A check is a test of the suite by its number, or a part of one: "0081 CreateTopics". Those in
# tests.allow are run, on a machine that is not too busy; ONLY="0001 0012" runs just these.
. "$(dirname "$0")/../harness.sh"

COMMIT=4c3b017c3de8d9c10de12b9eec0ea688e8d5787d # v2.15.0
KAFKA=4.2.0                                     # What the tests may expect of a broker.
SECONDS_MAX=300                                 # Of one check.

fetch_source() {
  LIBRDKAFKA=$ROOT/compat/librdkafka/source
  [ -d "$LIBRDKAFKA/tests" ] && return
  git init -q "$LIBRDKAFKA" &&
    git -C "$LIBRDKAFKA" fetch -q --depth 1 https://github.com/confluentinc/librdkafka $COMMIT &&
    git -C "$LIBRDKAFKA" checkout -q FETCH_HEAD
}
build() {
  [ -x "$LIBRDKAFKA/tests/test-runner" ] && return
  (cd "$LIBRDKAFKA" && ./configure --disable-gssapi --disable-curl && make -C src &&
    make -C src-cpp && make -C tests build) >"$WORK/built" 2>&1
}

# By default a topic has one partition and nobody heeds ACLs; the tests want four, and ACLs.
start_as_wanted() {
  cat >"$WORK/entrepot" <<END
#!/bin/sh
exec ${ENTREPOT:-$ROOT/.venv/bin/entrepot} "\$@" --set topics.num_partitions=4 \
  --set security.authorization=true --set 'security.super_users=["User:ANONYMOUS"]'
END
  chmod +x "$WORK/entrepot"
  ENTREPOT=$WORK/entrepot
  start_server
}

# A test that was skipped has not passed. -L: none of those that need no broker.
tested() {
  local number=$1 part=${2:-}
  printf 'metadata.broker.list=%s\ntest.topic.random=true\n' "$BOOTSTRAP" >"$WORK/test.conf"
  (cd "$LIBRDKAFKA/tests" && LD_LIBRARY_PATH=$LIBRDKAFKA/src:$LIBRDKAFKA/src-cpp \
    RDKAFKA_TEST_CONF=$WORK/test.conf TEST_KAFKA_VERSION=$KAFKA CLUSTER_VERSION=$KAFKA \
    TESTS=$number SUBTESTS=$part timeout $SECONDS_MAX ./test-runner -L -p1 2>&1) |
    sed 's/\x1b\[[0-9;]*m//g' >"$WORK/tested"
  ! grep -A 2 "^###" "$WORK/tested" && grep -q "^| $number[^|]*| *PASSED" "$WORK/tested"
}

command -v cc >/dev/null || { echo "SKIP  librdkafka: no compiler on the path"; exit 0; }
[ -n "${LIBRDKAFKA:-}" ] || fetch_source || { echo "SKIP  librdkafka: no source"; exit 0; }
build || { echo "SKIP  librdkafka: it does not build"; tail -5 "$WORK/built"; exit 0; }
start_as_wanted
while read -r name; do
  case " ${ONLY:-${name%% *}} " in
    # shellcheck disable=SC2086 # A number, and perhaps a part of the test.
    *" ${name%% *} "*) check "$name" tested $name </dev/null ;;
  esac
done <"$HERE/tests.allow"
report
