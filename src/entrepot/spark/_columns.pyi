from entrepot.core.ports import Buffer

_Strings = tuple[bytes, bytes, bytes]

class Columns:
    def __init__(self, with_headers: bool = False) -> None: ...
    @property
    def count(self) -> int: ...
    @property
    def size(self) -> int: ...
    def add(
        self,
        body: Buffer,
        count: int,
        offset_first: int,
        timestamp_first: int,
        append_time: int,
        offset_from: int,
        offset_until: int,
        /,
    ) -> int: ...
    def take(
        self,
    ) -> tuple[int, bytes, bytes, _Strings, _Strings, bytes, _Strings, _Strings]: ...
