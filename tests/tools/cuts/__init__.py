"""Which cuts of which operators give the same bits: makes the table in memsched/ops/cuts.toml."""
