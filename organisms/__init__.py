"""Small chat models trained from scratch, whose refusal mechanism is known by construction."""
