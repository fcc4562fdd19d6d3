"""Scripts that measure what a page states, and print it."""
