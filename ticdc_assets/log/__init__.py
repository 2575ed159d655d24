"""What landed and its decoded content: records, changes, quarantine, schemas, totals, cuts."""
