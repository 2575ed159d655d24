"""The Spark session, and what runs a step in this process or on Spark."""
