#!/usr/bin/env bash
# QoS 1: at least once. Who subscribed with less gets less.
. "$(dirname "$0")/lab.sh"

for qos in 0 1 2; do
  listen "subscriber-$qos" -q "$qos" -t 'lab/qos1' -t end
done
for number in 1 2 3; do
  publish -q 1 -t lab/qos1 -m "message $number"
done
publish -q 1 -t end -m end
for qos in 0 1 2; do
  heard "subscriber-$qos"
done
