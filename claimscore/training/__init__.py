"""Training of the small models that claimscore ships or fits; each trainer is a library."""
