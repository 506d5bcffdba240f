"""The commands, one function each: arguments -> settings -> one call -> print."""
