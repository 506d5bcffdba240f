"""What several engines share: one `Services` keeps it, each engine is a member through a `Client`.

Nothing here knows how letters travel: a function carries them.
"""
