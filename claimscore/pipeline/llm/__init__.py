"""The async fan-out: an engine around a provider of answers."""
