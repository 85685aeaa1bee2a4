"""Errors as SQS names them: one name in JSON, another in the older protocol with XML.

Clients of today read the first from `__type` and the second from a header, so that programs
written for the older protocol find the code that they know.
"""

from __future__ import annotations

from typing import NamedTuple

from entrepot.core.errors import PeerError

_SQS, _GENERAL = "com.amazonaws.sqs#", "com.amazon.coral.service#"


class _Names(NamedTuple):
    type: str  # In JSON.
    code: str  # In XML, in the header, and in the entries of a batch.
    status: int = 400


_OLD = "AWS.SimpleQueueService."
_ALL = {
    "AccessDenied": _Names(f"{_GENERAL}AccessDeniedException", "AccessDenied", 403),
    "BatchEntryIdsNotDistinct": _Names(
        f"{_SQS}BatchEntryIdsNotDistinct", f"{_OLD}BatchEntryIdsNotDistinct"
    ),
    "BatchRequestTooLong": _Names(f"{_SQS}BatchRequestTooLong", f"{_OLD}BatchRequestTooLong"),
    "EmptyBatchRequest": _Names(f"{_SQS}EmptyBatchRequest", f"{_OLD}EmptyBatchRequest"),
    "FilterPolicyLimitExceeded": _Names("", "FilterPolicyLimitExceeded", 403),  # Of SNS only.
    "IncompleteSignature": _Names(f"{_GENERAL}IncompleteSignatureException", "IncompleteSignature"),
    "InternalFailure": _Names(f"{_GENERAL}InternalFailure", "InternalFailure", 500),
    "InvalidAction": _Names(f"{_GENERAL}UnknownOperationException", "InvalidAction"),
    "InvalidAttributeName": _Names(f"{_SQS}InvalidAttributeName", "InvalidAttributeName"),
    "InvalidAttributeValue": _Names(f"{_SQS}InvalidAttributeValue", "InvalidAttributeValue"),
    "InvalidBatchEntryId": _Names(f"{_SQS}InvalidBatchEntryId", f"{_OLD}InvalidBatchEntryId"),
    "InvalidClientTokenId": _Names(f"{_GENERAL}InvalidClientTokenId", "InvalidClientTokenId", 403),
    "InvalidMessageContents": _Names(f"{_SQS}InvalidMessageContents", "InvalidMessageContents"),
    "InvalidParameter": _Names("", "InvalidParameter"),  # Of SNS only.
    "InvalidParameterValue": _Names(
        f"{_GENERAL}InvalidParameterValueException", "InvalidParameterValue"
    ),
    "MalformedInput": _Names(f"{_GENERAL}SerializationException", "MalformedInput"),
    "MessageNotInflight": _Names(f"{_SQS}MessageNotInflight", f"{_OLD}MessageNotInflight"),
    "MissingAuthenticationToken": _Names(
        f"{_GENERAL}MissingAuthenticationTokenException", "MissingAuthenticationToken", 403
    ),
    "MissingParameter": _Names(f"{_GENERAL}MissingRequiredParameterException", "MissingParameter"),
    "NotFound": _Names("", "NotFound", 404),  # Of SNS only.
    "OverLimit": _Names(f"{_SQS}OverLimit", "OverLimit", 403),
    "PurgeQueueInProgress": _Names(
        f"{_SQS}PurgeQueueInProgress", f"{_OLD}PurgeQueueInProgress", 403
    ),
    "QueueDoesNotExist": _Names(f"{_SQS}QueueDoesNotExist", f"{_OLD}NonExistentQueue"),
    "QueueNameExists": _Names(f"{_SQS}QueueNameExists", "QueueAlreadyExists"),
    "ReceiptHandleIsInvalid": _Names(f"{_SQS}ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid"),
    "ResourceNotFound": _Names(
        f"{_SQS}ResourceNotFoundException", "ResourceNotFoundException", 404
    ),
    "RequestThrottled": _Names(f"{_SQS}RequestThrottled", "RequestThrottled"),
    "ServiceUnavailable": _Names(f"{_GENERAL}ServiceUnavailable", "ServiceUnavailable", 503),
    "SignatureDoesNotMatch": _Names(
        f"{_GENERAL}SignatureDoesNotMatchException", "SignatureDoesNotMatch", 403
    ),
    "SubscriptionLimitExceeded": _Names("", "SubscriptionLimitExceeded", 403),  # Of SNS only.
    "TagLimitExceeded": _Names("", "TagLimitExceeded"),  # Of SNS only.
    "TooManyEntriesInBatchRequest": _Names(
        f"{_SQS}TooManyEntriesInBatchRequest", f"{_OLD}TooManyEntriesInBatchRequest"
    ),
    "UnsupportedOperation": _Names(f"{_SQS}UnsupportedOperation", f"{_OLD}UnsupportedOperation"),
}


class SqsError(PeerError):
    """A request, or an entry of a batch, that is answered with an error of SQS."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.type, self.code, self.status = _ALL[name]

    @property
    def is_senders(self) -> bool:
        """Return whether the sender made the mistake, and not the broker."""
        return self.status < 500


def missing(name: str) -> SqsError:
    return SqsError("MissingParameter", f"The request must contain the parameter {name}.")


def malformed(text: str) -> SqsError:
    return SqsError("MalformedInput", text)


def invalid(name: str, value: object, reason: str) -> SqsError:
    """Return the error for a parameter's value. A long value is cut."""
    shown = str(value)[:100]
    return SqsError(
        "InvalidParameterValue",
        f"Value {shown} for parameter {name} is invalid. Reason: {reason}",
    )
