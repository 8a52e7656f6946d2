"""The command line: one module per subcommand, what they share, and the entry."""
