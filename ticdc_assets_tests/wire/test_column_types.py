"""TiDB's numbers of column types and DDL statements, and their words."""

import pytest

from ticdc_assets.demo.simulator.encoders.shared import type_code
from ticdc_assets.model.mysql_types import KINDS
from ticdc_assets.wire.column_types import DDL_WORDS, OTHER_DDL, TYPE_NAMES, ddl_word
from ticdc_assets.wire.simple.message import DDL_TYPES


@pytest.mark.parametrize("code", TYPE_NAMES)
def test_every_type_has_its_code_back(code: int) -> None:
    for word in TYPE_NAMES[code]:
        # 253 is another number of VARCHAR, which no column has.
        assert type_code(word) == {253: 15}.get(code, code)
        assert word == "null" or word in KINDS


def test_only_character_types_have_two_names() -> None:
    twins = {names for names in TYPE_NAMES.values() if names[0] != names[1]}
    assert twins == {
        ("char", "binary"),
        ("varchar", "varbinary"),
        ("tinytext", "tinyblob"),
        ("text", "blob"),
        ("mediumtext", "mediumblob"),
        ("longtext", "longblob"),
    }


def test_types_are_found_as_they_are_spelled() -> None:
    assert type_code("INTEGER(11) UNSIGNED") == 3
    assert type_code("decimal(20,6)") == 246


def test_ddl_words_are_those_of_the_simple_protocol() -> None:
    assert {*DDL_WORDS.values(), OTHER_DDL} == {word.value for word in DDL_TYPES}
    assert {code: ddl_word(code) for code in (0, 1, 2, 21, 24, 25, 26, 42, 65, 255, 10**30)} == (
        dict.fromkeys((0, 1, 2, 21, 24, 25, 26, 42, 65, 255, 10**30), OTHER_DDL)
    )
