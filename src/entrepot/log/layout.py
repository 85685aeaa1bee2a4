"""The layout of the data directory: all files and their names.

    lock                                    held while a broker runs
    clean.checkpoint                        there only between a clean stop and the next start
    recovery.checkpoint                     below which offset each partition is permanent
    boot.checkpoint                         the machine's boot id, to notice that it was restarted
    cleaner.checkpoint                      up to which offset, and when, each was compacted
    coordinator.checkpoint                  what a coordinator of one node holds
    identity.checkpoint                     which node of which cluster this is
    journal/<generation>-<0 or 1>.journal   the commit journal
    partitions/<topic>-<index>/             one partition
        00000000000000000042.log            a segment: record batches, nothing else
        00000000000000000042.index          its seal and sparse index
        00000000000000000042.view           the broker's state as of that offset
        *.cleaned                           a compacted segment, not in service yet
        cleaned.swap                        which segments it is about to replace
        begun                               empty: there is a segment, with a permanent name
        anew                                at which offset the log is about to begin anew
        epochs                              which leader epoch begins where, if not all are 0
        *.deleted                           marked by retention, removed after a while
        *.aside                             cut off by recovery, kept for people to look at
    deleted/<topic id>-<index>/             a deleted partition, removed after a while

The bytes are in docs/formats/. Numbers and names never change their meaning.
"""

from entrepot.core.names import PartitionId

LOCK = "lock"
CLEAN_CHECKPOINT = "clean.checkpoint"
RECOVERY_CHECKPOINT = "recovery.checkpoint"
BOOT_CHECKPOINT = "boot.checkpoint"
JOURNAL_DIRECTORY = "journal"
CLEANER_CHECKPOINT = "cleaner.checkpoint"
COORDINATOR_CHECKPOINT = "coordinator.checkpoint"
IDENTITY = "identity.checkpoint"
PARTITIONS = "partitions"
DELETED = "deleted"

SEGMENT = ".log"
INDEX = ".index"
VIEW = ".view"
CLEANED = ".cleaned"
SWAP = "cleaned.swap"
BEGUN = "begun"
EPOCHS = "epochs"
ANEW = "anew"
MARKED = ".deleted"
ASIDE = ".aside"


def journal_paths(generation: int) -> tuple[str, str]:
    """Return the paths of a process's two journal files.

    They are named after the highest generation that was found at its start, so that they are never
    files of an earlier process.
    """
    return (
        f"{JOURNAL_DIRECTORY}/{generation:020d}-0.journal",
        f"{JOURNAL_DIRECTORY}/{generation:020d}-1.journal",
    )


def partition_directory(topic_name: str, index: int) -> str:
    return f"{PARTITIONS}/{topic_name}-{index}"


def deleted_directory(partition: PartitionId) -> str:
    return f"{DELETED}/{partition.topic.hex}-{partition.number}"


def file_name(offset: int, kind: str) -> str:
    """Return the file's name: the offset in twenty digits, so that names sort as offsets do."""
    return f"{offset:020d}{kind}"


def offset_of(name: str, kind: str) -> int | None:
    """Return the offset in the name of a file of this kind; None for any other name."""
    stem = name.removesuffix(kind)
    if stem == name or len(stem) != 20 or not stem.isdigit():
        return None
    return int(stem)
