"""The line of sight: what any model attends to, without the matrix and without changing its output."""
