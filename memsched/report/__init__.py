"""Floor 5: the JSON report, its schema, and what people see of it."""
