"""TiCDC change streams in Kafka, as consistent Delta Lake mirrors and Dagster assets."""
