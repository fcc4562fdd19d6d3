"""Side-by-side measurements: ours and its peers on the same inputs, in turns, in one run.

    python -m benchmarks look                       the CPU, then the GPU if there is one
    python -m benchmarks attention --quick --only causal --json results.json
    python -m benchmarks.gpu_check                  everything that only a GPU can say, in some minutes

``harness`` checks and times. A bench is a module with a function ``cases(device, quick)``. ``results`` has
what was measured for the documents.
"""
