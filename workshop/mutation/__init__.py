"""Mutation testing: small mistakes are put into a room, and its tests must notice."""
