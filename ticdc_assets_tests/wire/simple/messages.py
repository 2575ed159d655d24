"""Messages of the Simple protocol in JSON, written by hand from its document.

One of each kind, small enough to damage every bit of. Each is exactly as TiCDC would write it.
"""

from ticdc_assets.model.events import Bootstrap, Checksum, Event, Watermark, ZonedTimestamp
from ticdc_assets.model.schemas import ColumnSchema, IndexSchema, TableSchema
from ticdc_assets_tests.events import ddl_event, row_event

USER = TableSchema(
    database="simple",
    table="user",
    table_id=148,
    version=447984074911121426,
    columns=(
        ColumnSchema(
            name="id",
            mysql_type="bigint",
            charset="binary",
            collation="binary",
            length=20,
            unsigned=True,
            nullable=False,
        ),
        ColumnSchema(
            name="mood",
            mysql_type="enum",
            charset="utf8mb4",
            collation="utf8mb4_bin",
            length=4,
            elements=("good", "<b>"),
            default="good",
        ),
        ColumnSchema(
            name="flags",
            mysql_type="bit",
            charset="binary",
            collation="binary",
            length=8,
            unsigned=True,
            default=5,
        ),
        ColumnSchema(name="doc", mysql_type="json", charset="binary", collation="binary"),
        ColumnSchema(
            name="price",
            mysql_type="decimal",
            charset="binary",
            collation="binary",
            length=12,
            decimal=2,
            unsigned=True,
            zerofill=True,
        ),
    ),
    indexes=(
        IndexSchema(name="primary", unique=True, primary=True, nullable=False, columns=("id",)),
    ),
)

USER_JSON = (
    b'{"schema":"simple","table":"user","tableID":148,"version":447984074911121426,"columns":['
    b'{"name":"id","dataType":{"mysqlType":"bigint","charset":"binary","collate":"binary",'
    b'"length":20,"unsigned":true},"nullable":false,"default":null},'
    b'{"name":"mood","dataType":{"mysqlType":"enum","charset":"utf8mb4","collate":"utf8mb4_bin",'
    b'"length":4,"elements":["good","\\u003cb\\u003e"]},"nullable":true,"default":"good"},'
    b'{"name":"flags","dataType":{"mysqlType":"bit","charset":"binary","collate":"binary",'
    b'"length":8,"unsigned":true},"nullable":true,"default":5},'
    b'{"name":"doc","dataType":{"mysqlType":"json","charset":"binary","collate":"binary"},'
    b'"nullable":true,"default":null},'
    b'{"name":"price","dataType":{"mysqlType":"decimal","charset":"binary","collate":"binary",'
    b'"length":12,"decimal":2,"unsigned":true,"zerofill":true},"nullable":true,"default":null}],'
    b'"indexes":[{"name":"primary","unique":true,"primary":true,"nullable":false,'
    b'"columns":["id"]}]}'
)

INSERT = (
    b'{"version":1,"database":"simple","table":"user","tableID":148,"type":"INSERT",'
    b'"commitTs":447984084414103554,"buildTs":1708923662983,"schemaVersion":447984074911121426,'
    b'"data":{"age":null,"at":{"location":"Asia/Shanghai","value":"2024-02-26 13:01:02"},'
    b'"id":"1","name":"\xc3\xa9 \\"\\u003c\xf0\x9f\x9a\x80"}}'
)
UPDATE = (
    b'{"version":1,"database":"simple","table":"user","tableID":148,"type":"UPDATE",'
    b'"commitTs":447984099186180098,"buildTs":1708923719184,"schemaVersion":447984074911121426,'
    b'"claimCheckLocation":"file:///tmp/a.json","handleKeyOnly":true,'
    b'"checksum":{"version":1,"corrupted":false,"current":4294967295,"previous":0},'
    b'"data":{"id":"1"},"old":{"id":"1"}}'
)
DELETE = (
    b'{"version":1,"database":"simple","table":"user","tableID":148,"type":"DELETE",'
    b'"commitTs":447984114259722243,"buildTs":1708923776484,"schemaVersion":447984074911121426,'
    b'"old":{"age":"25","id":"1"}}'
)
WATERMARK = (
    b'{"version":1,"type":"WATERMARK","commitTs":447984124732375041,"buildTs":1708923816911}'
)
BOOTSTRAP = (
    b'{"version":1,"type":"BOOTSTRAP","commitTs":0,"buildTs":1708924603278,"tableSchema":'
    + USER_JSON
    + b"}"
)
DDL = (
    b'{"version":1,"type":"ALTER","sql":"alter table user comment \'\\u0026\'",'
    b'"commitTs":447987408682614795,"buildTs":1708936343598,"tableSchema":'
    + USER_JSON
    + b',"preTableSchema":'
    + USER_JSON
    + b"}"
)
DATABASE_DDL = (
    b'{"version":1,"type":"QUERY","sql":"create database `simple`",'
    b'"commitTs":447987408682614790,"buildTs":1708936343000}'
)

_CITED = {
    "database": "simple",
    "table": "user",
    "table_id": USER.table_id,
    "schema_version": USER.version,
}
EVENTS: dict[bytes, Event] = {
    INSERT: row_event(
        447984084414103554,
        build_ts_ms=1708923662983,
        after={
            "age": None,
            "at": ZonedTimestamp(location="Asia/Shanghai", value="2024-02-26 13:01:02"),
            "id": "1",
            "name": 'é "<🚀',
        },
        **_CITED,
    ),
    UPDATE: row_event(
        447984099186180098,
        build_ts_ms=1708923719184,
        before={"id": "1"},
        after={"id": "1"},
        handle_key_only=True,
        claim_check_location="file:///tmp/a.json",
        checksum=Checksum(version=1, corrupted=False, current=4294967295, previous=0),
        **_CITED,
    ),
    DELETE: row_event(
        447984114259722243, build_ts_ms=1708923776484, before={"age": "25", "id": "1"}, **_CITED
    ),
    WATERMARK: Watermark(watermark_ts=447984124732375041, build_ts_ms=1708923816911),
    BOOTSTRAP: Bootstrap(build_ts_ms=1708924603278, schema=USER),
    DDL: ddl_event(
        447987408682614795,
        "alter table user comment '&'",
        build_ts_ms=1708936343598,
        database="simple",
        table="user",
        schema=USER,
        pre_schema=USER,
    ),
    DATABASE_DDL: ddl_event(
        447987408682614790,
        "create database `simple`",
        ddl_type="QUERY",
        build_ts_ms=1708936343000,
        database="",
        table="",
    ),
}
"""Each message, and what it means."""


def changed(message: bytes, old: bytes, new: bytes) -> bytes:
    """Return `message` with `old`, which must be there once, replaced by `new`."""
    assert message.count(old) == 1, old
    return message.replace(old, new)
