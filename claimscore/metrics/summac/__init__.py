"""SummaC: NLI between the blocks of a document and the sentences of its summary."""
