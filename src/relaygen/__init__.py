"""A large and a small language model write one answer together."""
