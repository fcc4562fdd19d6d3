"""What an operator was called with, read as one call of attention: a module for each family of operators."""
