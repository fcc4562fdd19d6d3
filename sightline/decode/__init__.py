"""From a model that steps to a sentence: greedy, sampling, beam."""
