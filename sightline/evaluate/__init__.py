"""Evaluators: each takes what a model said and gives scores by name."""
