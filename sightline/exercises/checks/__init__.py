"""The calls that grade each exercise, and the mistakes that are known."""
