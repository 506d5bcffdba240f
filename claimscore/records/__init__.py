"""Records: what goes in. Validated once as a stream, then read again chunk by chunk (`dataset`)."""
