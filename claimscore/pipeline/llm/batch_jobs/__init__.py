"""Requests that a server answers in hours at half the price: OpenAI's batch jobs."""
