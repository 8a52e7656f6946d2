"""What every package uses: errors, sizes and their units, frozen and typed values, templates."""
