#!/usr/bin/env bash
# A retailer, a vendor and two suppliers, by JMS: seven steps in transactions (Retailer.java), against
# the broker at AMQP (localhost:5672). Needs a JDK and mvn.
#
#     examples/jms/run.sh           all programs, one after the other
#     examples/jms/run.sh 4         the one that does step 4 is killed in the middle of it, and run again
set -eu
AMQP=${AMQP:-localhost:5672}
STEP=${1:-0}
HERE=$(cd "$(dirname "$0")" && pwd)
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

mvn -B -q -f "$HERE" dependency:copy-dependencies -DoutputDirectory="$WORK/jars" >"$WORK/mvn" ||
  { cat "$WORK/mvn" >&2; exit 69; }
javac -cp "$WORK/jars/*" -d "$WORK/classes" "$HERE/Retailer.java"

PREFIX=retailer-$$-
program_of=(none order request request cpu confirm confirm confirmed) # By step.
retailer() { exec java -cp "$WORK/jars/*:$WORK/classes" Retailer "$1" "amqp://$AMQP" "$PREFIX" "${@:2}"; }

(retailer stock)
for program in order request cpu disk confirm confirmed; do
  if [ "$program" = "${program_of[$STEP]}" ]; then
    (retailer "$program" "$STEP") >"$WORK/stopped" &
    victim=$!
    until grep -q "^AT $STEP$" "$WORK/stopped"; do
      kill -0 "$victim"
      sleep 0.1
    done
    kill -9 "$victim"
    wait "$victim" 2>/dev/null || true
    echo "$program: killed in step $STEP"
  fi
  echo "$program"
  (retailer "$program") | sed 's/^\([0-9]*\) true$/  \1 of each: delivered/; s/^\([0-9]*\) false$/  \1 of each: not in stock/'
done
