#!/usr/bin/env bash
# A client that starts clean gets nothing of what was published while it was away.
. "$(dirname "$0")/lab.sh"

listen before -i lab-clean -q 1 -t lab/clean
stop before
publish -q 1 -t lab/clean -m 'while it was away'
listen client -i lab-clean -q 1 -t lab/clean
publish -q 1 -t lab/clean -m 'while it is there'
publish -q 1 -t lab/clean -m end
heard client
