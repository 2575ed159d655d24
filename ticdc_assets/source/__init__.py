"""Where records come from: Kafka, captures, exports of Dumpling, large messages in a store."""
