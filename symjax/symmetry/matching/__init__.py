"""Find the permutations and signs that bring one network to another."""
