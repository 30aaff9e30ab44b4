"""One network for all that symmetries make equivalent: scales, order and signs."""
