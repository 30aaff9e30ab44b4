"""The symmetries of a network, found from its jaxpr, and operators that act with them."""
