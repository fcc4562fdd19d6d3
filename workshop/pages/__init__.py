"""The pages and notebooks of docs/ that are written from the code."""
