"""Lists in pages of a hundred: a token says after which name the next one begins."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from heapq import nsmallest

from entrepot.wire.sqs import limits as sqs_limits
from entrepot.wire.sqs.errors import SqsError
from entrepot.wire.sqs.parameters import Parameters


def page(names: Iterable[str], given: Parameters) -> tuple[list[str], dict[str, str]]:
    """Return the names of one page in their order, and the token of the next one, if any."""
    token = given.text_or_none("NextToken") or ""
    try:
        after = urlsafe_b64decode(token.encode()).decode()
    except ValueError:
        raise SqsError("InvalidParameter", "Invalid parameter: NextToken") from None
    most = sqs_limits.SNS_PAGE_MAX
    found = nsmallest(most + 1, (name for name in names if name > after))
    if len(found) <= most:
        return found, {}
    return found[:most], {"NextToken": urlsafe_b64encode(found[most - 1].encode()).decode()}
