"""What friends play and what playlists become, as Spotify tells it to those who follow.

Both are published once, and whoever publishes does not know who follows. What a friend plays now is
for those who are there now. A change of a playlist is for all who follow it, and for all of their
devices, also for one that is switched on later: it reads on where it was.
"""

from __future__ import annotations

from typing import Any

from examples.interaction.room import Connect, eventually, room


class Device:
    """A device of somebody who follows a friend and a playlist."""

    def __init__(self, connect: Connect, name: str) -> None:
        self._connect = connect
        self._name = name
        self.shown: list[str] = []

    def switch_on(self, friend: str, playlist: str) -> None:
        client = self._connect()
        client.subscribe(f"playing.{friend}", lambda _, event: self._show(friend, event.value))
        self._changes = client.topic(f"playlist.{playlist}").read(group=self._name)

    def _show(self, friend: str, song: str) -> None:
        self.shown.append(f"{friend} plays {song}")

    def refresh(self) -> None:
        """Show how the playlist has changed since this device has looked last."""
        for entry in self._changes.poll(0.2):
            self.shown.append(f"{entry.value['by']} added {entry.value['song']}")
        self._changes.commit()

    def shows(self, count: int) -> bool:
        self.refresh()
        return len(self.shown) >= count


def main() -> None:
    with room() as (_, connect):
        ben: Any = connect()
        playlist = ben.topic("playlist.jazz", partitions=1)
        phone, laptop = Device(connect, "ana's phone"), Device(connect, "ana's laptop")
        phone.switch_on("ben", "jazz")
        ben.publish("playing.ben", "So What")
        playlist.append({"by": "ben", "song": "Blue in Green"})
        eventually(lambda: phone.shows(2))
        laptop.switch_on("ben", "jazz")
        ben.publish("playing.ben", "Naima")
        playlist.append({"by": "ben", "song": "Giant Steps"})
        eventually(lambda: phone.shows(4) and laptop.shows(3))
        print("ana's phone:", "; ".join(sorted(phone.shown)))
        print("her laptop, switched on later:", "; ".join(sorted(laptop.shown)))


if __name__ == "__main__":
    main()
