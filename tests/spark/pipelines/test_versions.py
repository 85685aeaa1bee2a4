"""Versions of views, and which of them counts. Without Spark."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")
pytest.importorskip("deltalake", reason="pip install 'entrepot[spark]' for this test")

from entrepot.spark.pipelines import PipelineError
from entrepot.spark.pipelines.versions import Directory, Locks, rebuilding


def test_a_swap_keeps_the_new_one_and_the_last(tmp_path: Path) -> None:
    place = Directory(tmp_path).place("sales")
    assert place.current() is None
    for number in (1, 2, 3):
        version = place.new_version()
        assert version.number == number
        (version.path / "table").mkdir()
        place.swap(version)
        assert place.current() == version
    assert sorted(path.name for path in (tmp_path / "sales").iterdir()) == ["2", "3", "CURRENT"]


def test_what_a_failed_rebuilding_left_is_removed_by_the_next(tmp_path: Path) -> None:
    place = Directory(tmp_path).place("sales")
    place.swap(place.new_version())
    left = place.new_version()
    (left.path / "table").mkdir()
    assert place.current().number == 1  # type: ignore[union-attr]
    again = place.new_version()
    assert (again.number, list(again.path.iterdir())) == (2, [])


def test_a_version_remembers_what_it_is(tmp_path: Path) -> None:
    version = Directory(tmp_path).place("sales").new_version()
    assert (version.description, version.offsets) == (None, None)
    version.describe({"table": "sales"})
    version.keep_offsets({"orders": {"orders": {"0": 7}}})
    assert version.description == {"table": "sales"}
    assert version.offsets == {"orders": {"orders": {"0": 7}}}


def test_a_table_is_found_by_its_name_whoever_wrote_it(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    place = directory.place("by_customer")
    version = place.new_version()
    version.describe({"table": "sales"})
    place.swap(version)
    found = directory.find_table("sales")
    assert found is not None
    assert found.path == place.path
    assert directory.find_table("nothing") is None


def test_a_current_that_is_no_number_is_named(tmp_path: Path) -> None:
    (tmp_path / "sales").mkdir()
    (tmp_path / "sales" / "CURRENT").write_text("two")
    with pytest.raises(PipelineError, match="sales/CURRENT: 'two' is not a version's number"):
        Directory(tmp_path).place("sales").current()


def test_one_at_a_time(tmp_path: Path) -> None:
    place = Directory(tmp_path).place("sales")
    with rebuilding([place]):
        with pytest.raises(PipelineError, match="sales is being rebuilt"), rebuilding([place]):
            pass
        locks = Locks()
        assert locks.take(place.path / "LIVE"), "a live run goes on meanwhile"
        locks.release()
    with rebuilding([place]):
        pass
