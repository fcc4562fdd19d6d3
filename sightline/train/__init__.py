"""One loop for every model, on Accelerate, that can be killed and goes on to the bit."""
