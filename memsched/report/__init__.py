"""The JSON report, its schema, and what people see of it."""
