#!/usr/bin/env bash
# `+` stands for one level, whole, anywhere in a filter.
. "$(dirname "$0")/lab.sh"

listen tennis -q 1 -t 'sport/tennis/+' -t end
listen sport -q 1 -t 'sport/+' -t end
listen finance -q 1 -t '+/+' -t end
for topic in sport/tennis/player1 sport/tennis/player2 sport/tennis/player1/ranking sport sport/ /finance; do
  publish -q 1 -t "$topic" -m "news of $topic"
done
publish -q 1 -t end -m end
heard tennis
heard sport
heard finance
