"""Decoding: greedy, sampling and beam search over a model that takes steps."""
