"""The operator table: what each operator of each format does."""
