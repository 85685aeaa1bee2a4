"""Our catalogue against kio's."""

import pytest
from kio.schema.index import api_key_map, schema_name_map

from entrepot.wire.kafka.api import Api, request_class, response_class, versions
from tests.unit.wire.kafka import oracle


def test_every_api_of_kio_is_there_under_its_name() -> None:
    assert {api.value: api.name.lower() for api in Api} == dict(api_key_map)
    assert Api(18) is Api.API_VERSIONS


@pytest.mark.parametrize("api", Api, ids=lambda api: api.name)
def test_versions_are_those_of_kio_without_a_gap(api: Api) -> None:
    first, last = versions(api)
    assert sorted(schema_name_map[api.name.lower()]) == list(range(first, last + 1))


def test_classes_and_where_they_turn_flexible() -> None:
    for load, classes in ((request_class, oracle.requests()), (response_class, oracle.responses())):
        for expected in classes:
            api = Api(expected.__api_key__)
            assert load(api, expected.__version__) is expected
            assert expected.__flexible__ == (expected.__version__ >= api.flexible_from)


def test_a_version_nobody_has_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError):
        request_class(Api.METADATA, versions(Api.METADATA)[1] + 1)
