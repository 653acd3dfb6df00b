"""Which socket serves which turn: decisions and state, no I/O."""
