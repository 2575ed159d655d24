"""Which mirrors are marked for what TiCDC's Craft encoder does to FLOAT."""

import pytest

from ticdc_assets.changelog.encoder_damage import damage_caveats
from ticdc_assets.changelog.plan import MirrorPlan
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.changelog.lives import only_table
from ticdc_assets_tests.events import ddl_event


def planned(*sqls: str) -> MirrorPlan:
    """Return the plan of a table after DDL at commit ts 10, 20, ..."""
    events = [ddl_event(10 * number, sql) for number, sql in enumerate(sqls, 1)]
    return only_table(events).plan


CREATE = "create table t (id int primary key, f float, d double, `g h` float(7,3))"
REASON = "FLOAT column(s) {}: TiCDC's Craft encoder may have damaged the values, since {}"


@pytest.mark.parametrize("wire_format", WireFormat)
def test_only_craft_damages(wire_format: WireFormat) -> None:
    caveats = damage_caveats(planned(CREATE), wire_format)
    wanted = [REASON.format("`f`, `g h`", 10)] if wire_format is WireFormat.CRAFT else []
    assert [str(caveat) for caveat in caveats] == wanted


@pytest.mark.parametrize(
    ("sqls", "columns", "since"),
    [
        (["create table t (id int primary key, d double)"], "", 0),
        (["create table t (id int primary key, f float as (id))"], "", 0),
        ([CREATE, "alter table t drop column f"], "`g h`", 10),
        # The values that were sent as FLOAT live on.
        ([CREATE, "alter table t modify f double, drop column `g h`"], "`f`", 10),
        ([CREATE, "alter table t change f x double, drop column `g h`"], "`x`", 10),
        (["create table t (id int primary key)", "alter table t add f float"], "`f`", 20),
        # And here they are gone.
        ([CREATE, "truncate table t"], "`f`, `g h`", 20),
        ([CREATE, "alter table t modify f double, drop `g h`", "truncate table t"], "", 0),
        # A new key: the rows are handed over to the same table.
        ([CREATE, "alter table t drop primary key, drop `g h`, modify f double"], "`f`", 10),
    ],
)
def test_the_columns_with_values_that_came_as_float(
    sqls: list[str], columns: str, since: int
) -> None:
    caveats = damage_caveats(planned(*sqls), WireFormat.CRAFT)
    wanted = [REASON.format(columns, since)] if columns else []
    assert [str(caveat) for caveat in caveats] == wanted
