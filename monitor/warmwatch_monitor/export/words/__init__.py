"""Sentences: what people read. Pure; every state and number in them comes from the Snapshot."""
