"""Paid answers, kept: how a request is named (`key`) and where its answer lies (`store`)."""
