"""Changing what a model attends to: heads ablated, pairs forbidden, scores tempered."""
