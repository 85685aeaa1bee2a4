#!/usr/bin/env bash
# kcat against entrepot: metadata; producing with keys, headers, each codec and each acks;
# consuming from the beginning, from an offset, from the end, from a time.
. "$(dirname "$0")/../harness.sh"

command -v kcat >/dev/null || { echo "SKIP  kcat: not on the path"; exit 0; }
RUN=$$ # A broker that was there before may have topics of an earlier run.

kafka() { timeout 60 kcat -b "$BOOTSTRAP" "$@"; }
consume() { kafka -C -q -e "$@"; }
milliseconds() { echo $(($(date +%s%N) / 1000000)); }

brokers() {
  kafka -L | grep -E "^ *1 brokers:|broker .* at $BOOTSTRAP"
}
new_topic() {
  printf 'one\ntwo\nthree\n' | kafka -P -t "$PLAIN" -p 0 &&
    kafka -L -t "$PLAIN" | grep "topic \"$PLAIN\" with 1 partitions"
}
keys_and_headers() {
  printf 'k1:first\nk2:second\n' | kafka -P -t "$KEYED" -p 0 -K : -H source=kcat -H kind=test &&
    expect $'0 k1 first source=kcat,kind=test\n1 k2 second source=kcat,kind=test' \
      consume -t "$KEYED" -o beginning -f '%o %k %s %h\n'
}
null_value() {
  printf 'k1:\n' | kafka -P -t "$KEYED" -p 0 -K : -Z &&
    expect 'k1 -1' consume -t "$KEYED" -o 2 -f '%k %S\n'
}
codec() {
  local topic=codec-$1-$RUN
  kafka -P -t "$topic" -p 0 -X compression.codec="$1" -l "$WORK/lines" &&
    consume -t "$topic" -o beginning -X check.crcs=true | cmp - "$WORK/lines"
}
acks() {
  local topic=acks$1-$RUN
  printf 'sure\n' | kafka -P -t "$topic" -p 0 -X topic.acks="$1" || return
  for _ in $(seq 50); do # acks=0 returns before the broker has it.
    expect sure consume -t "$topic" -o beginning && return
    sleep 0.1
  done
  return 1
}
idempotent() {
  kafka -P -t "idem-$RUN" -p 0 -X enable.idempotence=true -l "$WORK/lines" &&
    consume -t "idem-$RUN" -o beginning | cmp - "$WORK/lines"
}
from_time() {
  local topic=time-$RUN between
  printf 'early\n' | kafka -P -t "$topic" -p 0 || return
  sleep 0.1
  between=$(milliseconds)
  sleep 0.1
  printf 'late\n' | kafka -P -t "$topic" -p 0 || return
  expect late consume -t "$topic" -p 0 -o "s@$between" &&
    expect "$topic [0] offset 1" kafka -Q -t "$topic:0:$between"
}
follow() {
  kafka -C -q -t "$PLAIN" -p 0 -o end -c 1 -u >"$WORK/followed" &
  local reader=$!
  sleep 1
  printf 'four\n' | kafka -P -t "$PLAIN" -p 0
  wait $reader && expect four cat "$WORK/followed"
}

# Two thousand lines that compress: librdkafka sends what does not shrink as it is.
seq -f 'line %06.0f of a text that repeats itself, of a text that repeats itself' 2000 \
  >"$WORK/lines"
PLAIN=plain-$RUN
KEYED=keyed-$RUN
start_server
check "metadata names the broker" brokers
check "producing creates a topic" new_topic
check "consume from the beginning" expect $'one\ntwo\nthree' consume -t "$PLAIN" -o beginning
check "consume from an offset" expect $'two\nthree' consume -t "$PLAIN" -p 0 -o 1
check "consume the last one" expect three consume -t "$PLAIN" -p 0 -o -1
check "consume from a time" from_time
check "follow from the end" follow
check "keys and headers" keys_and_headers
check "a null value" null_value
for name in none gzip snappy lz4 zstd; do
  check "codec $name" codec $name
done
for count in 0 1 -1; do
  check "acks $count" acks $count
done
check "idempotent producer" idempotent
report
