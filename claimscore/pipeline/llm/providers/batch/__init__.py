"""Work that servers do in hours at half the price: everything of it but the provider itself."""
