#!/usr/bin/env bash
# `#` stands for a level and everything below it, and is the last of a filter.
. "$(dirname "$0")/lab.sh"

listen player -q 1 -t 'sport/tennis/player1/#' -t end
listen sport -q 1 -t 'sport/#' -t end
for topic in sport sport/tennis/player1 sport/tennis/player1/ranking sport/tennis/player1/score/wimbledon finance; do
  publish -q 1 -t "$topic" -m "news of $topic"
done
publish -q 1 -t end -m end
heard player
heard sport
for filter in 'sport/tennis#' 'sport/tennis/#/ranking' 'sport+'; do
  mosquitto_sub -h "$HOST" -p "$PORT" -t "$filter" -W 1 >/dev/null 2>&1 || echo "$filter is refused"
done
