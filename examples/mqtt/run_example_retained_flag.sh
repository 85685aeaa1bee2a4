#!/usr/bin/env bash
# The last retained message of a topic comes first to who subscribes later, with its QoS. One
# without content removes it.
. "$(dirname "$0")/lab.sh"

publish -q 1 -r -t lab/retained -m 'the first, replaced'
publish -q 1 -r -t lab/retained -m 'the last, retained'
publish -q 1 -t lab/retained -m 'not retained'
listen late -q 1 -t lab/retained -t end
publish -q 1 -t lab/retained -m 'live'
publish -q 1 -t end -m end
heard late
publish -q 1 -r -t lab/retained -n
listen later -q 1 -t lab/retained -t end
publish -q 1 -t end -m end
heard later
