"""Claims and facts without a language model: a parser, and what its trees let say."""
