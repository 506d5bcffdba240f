"""The model stage: NLI probabilities and BERTScore, in batches, from pinned models."""
