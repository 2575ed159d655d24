"""`python -m bench`: measure, print the tables, and write them into docs/performance.md.

Sizes are small enough for a few minutes on two cores. What is not Spark's comes first, in a
process without a JVM beside it.
"""

import shutil
import tempfile
from pathlib import Path

import click

from bench.conversions import measure_conversions
from bench.decoding import measure_decoding
from bench.folding import measure_folding
from bench.measuring import peak_megabytes
from bench.messages import load_messages
from bench.results import Report, Result

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "performance.md"


@click.command()
@click.option("--messages", "count", default=20_000, show_default=True, help="Messages to decode.")
@click.option("--repetitions", default=5, show_default=True, help="Repetitions of each piece.")
@click.option("--spark/--no-spark", default=True, show_default=True, help="Measure Spark too.")
@click.option("--write/--no-write", default=True, show_default=True, help="Write the document.")
@click.option("--profile", is_flag=True, help="Show where Python spends its time, and stop.")
def main(count: int, repetitions: int, spark: bool, write: bool, profile: bool) -> None:
    """Measure decoding, conversions, folding and merging."""
    messages = load_messages(count)
    if profile:
        from bench.profiling import profile_decoding, profile_fold

        click.echo("decode_batch")
        click.echo(profile_decoding(messages))
        click.echo("change_effects: row changes to the effects that a fold takes")
        click.echo(profile_fold(messages))
        return
    facts = [
        f"Messages are from {messages.source}: {len(messages.records):,} records, "
        f"{messages.rows:,} of them row changes, {messages.size // len(messages.records)} bytes "
        "each on average."
    ]
    note("decoding")
    results = measure_decoding(messages, repetitions=repetitions)
    note("folding")
    results += measure_folding(messages, repetitions=repetitions)
    note("conversions")
    results += measure_conversions(values=20_000, repetitions=repetitions)
    facts.append(f"Peak memory before Spark: {peak_megabytes()[0]} MB.")
    if spark:
        with_spark = measure_spark(count, repetitions=max(3, repetitions - 2))
        own, below = peak_megabytes()
        results += with_spark
        facts.append(f"Peak memory with Spark: {own} MB in Python's driver, {below} MB in the JVM.")
    report = Report(results=results, facts=facts)
    report.show()
    if write and spark:
        report.write(DOCUMENT)
        note(f"wrote {DOCUMENT}")


def measure_spark(count: int, *, repetitions: int) -> list[Result]:
    """Measure what needs a session, in a folder that is gone afterwards."""
    from bench.pipeline import (
        measure_control,
        measure_decoding_stage,
        measure_many_tables,
        measure_one_table,
    )
    from ticdc_assets.lake.session import get_spark

    note("Spark starts")
    spark = get_spark({"spark.master": "local[2]"})
    folder = Path(tempfile.mkdtemp(prefix="ticdc_assets_bench_"))
    try:
        note("decoding in Spark")
        results = measure_decoding_stage(
            spark, folder / "decoding", load_messages(count).repeated(2), repetitions=repetitions
        )
        note("one table")
        results += measure_one_table(
            spark, folder / "one", rows=10_000, changes=1_000, repetitions=repetitions
        )
        note("ten tables")
        results += measure_many_tables(
            spark, folder / "many", tables=10, rows=1_000, changes=100, repetitions=repetitions
        )
        note("control tables")
        results += measure_control(spark, folder / "control", repetitions=repetitions)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return results


def note(text: str) -> None:
    """Say on standard error what is being measured."""
    click.echo(text, err=True)


if __name__ == "__main__":
    main()
