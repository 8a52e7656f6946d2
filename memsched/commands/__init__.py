"""What each subcommand does, as plain functions over values: one folder or file for each."""
