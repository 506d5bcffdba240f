"""Requests and tokens a minute: kept where they are declared, found where they are not."""
