"""Where answers come from: one file a family, one method a provider."""
