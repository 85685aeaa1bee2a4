#!/usr/bin/env bash
# QoS 0: once or not at all. Nothing is stored, nothing is acknowledged.
. "$(dirname "$0")/lab.sh"

for qos in 0 1 2; do
  listen "subscriber-$qos" -q "$qos" -t 'lab/qos0' -t end
done
for number in 1 2 3; do
  publish -q 0 -t lab/qos0 -m "message $number"
done
publish -q 1 -t end -m end
for qos in 0 1 2; do
  heard "subscriber-$qos"
done
