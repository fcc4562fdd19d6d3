"""Scripts that draw the pictures of docs/pictures, with the numbers some of them keep."""
