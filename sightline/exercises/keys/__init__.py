"""The solved exercises. What is between their marks is cut from the file that a student gets."""
