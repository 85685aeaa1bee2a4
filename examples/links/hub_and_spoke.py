"""Hub and spoke: the shops know the head office only, and reach each other through it.

    python -m examples.links.hub_and_spoke

The head office has a link to every shop, and each shop one to the head office. Nobody wrote down
how a shop is reached: they have learned it.
"""

from __future__ import annotations

from examples.links.managers import channel, emptied, eventually, knows, linked

SHOPS = ("rome", "oslo", "lima")


def main() -> None:
    with linked({"office": SHOPS} | {shop: ["office"] for shop in SHOPS}) as managers:
        for shop in SHOPS:
            with channel(managers[shop]) as declaring:
                declaring.queue_declare("requests", durable=True)
            for other in SHOPS:
                eventually(lambda shop=shop, other=other: knows(managers[shop], other))
        for shop in SHOPS:
            with channel(managers[shop]) as putting:
                for other in SHOPS:
                    if other != shop:
                        text = f"{shop} asks {other} for two shirts"
                        putting.basic_publish("", f"requests@{other}", text.encode())
        for shop in SHOPS:
            for text in sorted(emptied(managers[shop], "requests", len(SHOPS) - 1)):
                print(text)


if __name__ == "__main__":
    main()
