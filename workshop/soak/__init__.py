"""Hours of work in one process, and whether anything grows."""
