"""Conversions of values: as sent to canonical text, and canonical text to typed columns."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from bench.measuring import measure
from bench.results import Result
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import canonical_of, physical_of, text_of, typed_array
from ticdc_assets_tests.demo.simulator.random_values import random_value

entry = partial(Result, "Values, one process, no Spark")
Converter: TypeAlias = Callable[[Any], Any]

TIMEZONE = "Asia/Shanghai"
TYPES = (
    "bigint",
    "decimal(12,2)",
    "double",
    "varchar(40)",
    "varbinary(40)",
    "datetime(6)",
    "timestamp(3)",
    "enum('new','paid','sent')",
    "json",
)


def measure_conversions(*, values: int, repetitions: int) -> list[Result]:
    """Return the cost of one value of each type, there and back."""
    results: list[Result] = []
    for sql_type in TYPES:
        schema = column("c", sql_type, nullable=False)
        rng = random.Random(0)
        texts: list[str | None] = [
            random_value(rng, schema, timezone=TIMEZONE) for _ in range(values)
        ]
        sent = [physical_of(schema, TIMEZONE)(text) for text in texts]
        canonical = canonical_of(schema, TIMEZONE)
        render = text_of(schema, TIMEZONE)
        array, _ = typed_array(schema, TIMEZONE, texts)
        stored = [value for value in array.to_pylist() if value is not None]

        def there(
            canonical: Converter = canonical, sent: list[Any] = sent, schema: ColumnSchema = schema
        ) -> None:
            typed_array(schema, TIMEZONE, [canonical(value) for value in sent])

        def back(render: Converter = render, stored: list[Any] = stored) -> None:
            for value in stored:
                render(value)

        works = {"as sent to typed column": there, "typed column to text": back}
        results += [
            entry(f"{sql_type}: {what}", measure(work, repetitions=repetitions), values, "values")
            for what, work in works.items()
        ]
    return results
