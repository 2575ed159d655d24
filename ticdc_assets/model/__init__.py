"""What messages and tables are made of: TSOs, events, schemas, MySQL types and values."""
