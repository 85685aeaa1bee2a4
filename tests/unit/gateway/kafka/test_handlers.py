"""Nothing that serves an API is imported before the API is asked for."""

import subprocess
import sys

from entrepot.gateway.kafka import apis


def test_each_entry_loads_the_api_that_it_names() -> None:
    for entry in apis.SERVED:
        assert entry.load.__name__ == entry.api.name.lower()
        assert entry.load().__module__ in (
            f"entrepot.gateway.kafka.{entry.api.name.lower()}",
            "entrepot.gateway.kafka.repeated",
        )


def test_the_registry_imports_no_handler() -> None:
    program = "import sys\nfrom entrepot.gateway.kafka import apis\nprint(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = ran.stdout.split()
    assert "entrepot.gateway.kafka.apis" in loaded
    for entry in apis.SERVED:
        assert f"entrepot.gateway.kafka.{entry.api.name.lower()}" not in loaded
        assert f"kio.schema.{entry.api.name.lower()}" not in loaded
