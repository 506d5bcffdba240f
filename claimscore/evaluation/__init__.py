"""Meta-evaluation: how well scores agree with what people say. Reads tables, asks no model."""
