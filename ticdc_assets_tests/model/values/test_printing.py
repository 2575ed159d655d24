"""Canonical text as TiDB prints it."""

import pytest

from ticdc_assets.model.values.canonical import canonical_of
from ticdc_assets.model.values.printing import printers
from ticdc_assets_tests.model.values.columns import column


@pytest.mark.parametrize(
    ("sql", "sent"),
    [
        ("json", '{"a": [1]}'),
        ("json", '{"a,b:c": ["x: y, z", {"d\\"": -3e-7}], "e": null}'),
        ("json", "[]"),
        ("json", "-3e-7"),
        ("vector(3)", "[1,-2.5,-0.0000003]"),
        ("varchar(20)", '{"a":[1]}'),
    ],
)
def test_what_tidb_printed_is_printed_again(sql: str, sent: str) -> None:
    schema = column(sql)
    text = canonical_of(schema, "UTC")(sent)
    assert text is not None
    assert printers([schema]).get("c", str)(text) == sent
