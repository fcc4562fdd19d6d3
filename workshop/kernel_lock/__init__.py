"""What each question launches on a Hopper GPU, compiled without one: kernels, grids, arguments and PTX."""
