"""What landed and what it says: records, changes, quarantine, schemas, totals, cuts."""
