"""What instructions cost beside products, in cycles, on a GPU of Hopper's kind: in CUDA C++.

    python -m workshop.measure.products_in_turns            # needs nvcc and the GPU

Groups of four warps multiply tiles of 64 x 128 x 128 and work on each with n instructions a thread. They run
freely, or take turns: a group starts to multiply when the one before has handed its product to the tensor
cores, so that one multiplies while the others work. If products and instructions overlapped, a tile would
take the longer of both; if not, their sum. Additions come in chains, each waiting for the one before: the
fewer chains, the more often a warp has nothing to issue, and the scheduler turns to another.
"""

import subprocess
import tempfile
from pathlib import Path

REGISTERS = 64  # of a thread, for the products of a tile
SOURCE = r"""
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cuda_bf16.h>
#include <vector>

constexpr int TILES = 4000;

// Rows of 128 bytes, swizzled, eight of them 1,024 bytes apart from the next.
__device__ uint64_t in_shared(uint32_t at) {
  return (uint64_t)((at & 0x3FFFF) >> 4) | (uint64_t)1 << 16 | (uint64_t)64 << 32 | (uint64_t)1 << 62;
}

__device__ void multiply(float (&s)[64], uint32_t q, uint32_t k) {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int i = 0; i < 8; i++)
    asm volatile("{ .reg .pred more; setp.ne.b32 more, %66, 0;"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {LIST}, %64, %65, more, 1, 1, 0, 0; }"
                 : OPERANDS
                 : "l"(in_shared(q + i / 4 * 8192 + i % 4 * 32)),
                   "l"(in_shared(k + i / 4 * 16384 + i % 4 * 32)), "r"(i));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

__device__ void finish(float (&s)[64]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" : OPERANDS :: "memory");
}

// WORK < 10: so many additions a weight, in CHAINS. 10: logarithm, exponential, received, entropy.
// 11: and the peak. 12: and the group of four weights that it lies in.
template <int WORK, int CHAINS>
__device__ void work(float (&s)[64], float (&t)[32], float &e0, float &e1, float scale,
                     uint32_t &m0, uint32_t &m1, uint32_t &at0, uint32_t &at1) {
  float l0 = e0 * 1e-30f - 1, l1 = e1 * 1e-30f - 2;
  uint32_t g0 = 0, g1 = 0;
#pragma unroll
  for (int n = 0; n < (WORK < 10 ? WORK : 1); n++)
#pragma unroll
    for (int i = 0; i < 64; i++) {
      if (WORK < 10) { asm volatile("add.f32 %0, %0, %1;" : "+f"(t[i % CHAINS]) : "f"(s[i])); continue; }
      bool second = i >> 1 & 1;
      float x = fmaf(s[i], scale, second ? l1 : l0), w;
      asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(w) : "f"(x));
      t[(i >> 2) * 2 + (i & 1)] += w;
      (second ? e1 : e0) = fmaf(w, x, second ? e1 : e0);
      uint32_t bits = __float_as_uint(x), &m = second ? m1 : m0;
      uint32_t &g = second ? g1 : g0, &at = second ? at1 : at0;
      if (WORK == 11) m = min(m, bits);
      if (WORK == 12) {
        g = i % 8 < 4 && i % 2 == 0 ? bits : min(g, bits);
        if (i % 8 >= 4 && i % 2) { at = g < m ? i / 8 : at; m = min(m, g); }
      }
    }
}

template <int WORK, int CHAINS, int GROUPS, bool TURNS, bool PRODUCTS>
__global__ void __launch_bounds__(128 * GROUPS) kernel(long long *cycles, float *sink, float scale) {
  extern __shared__ char memory[];
  uint32_t at = (uint32_t)__cvta_generic_to_shared(memory), k = (at + 1023) & ~1023u;
  auto *numbers = (__nv_bfloat16 *)(memory + (k - at));
  for (int i = threadIdx.x; i < (32768 + 16384 * GROUPS) / 2; i += 128 * GROUPS)
    numbers[i] = __float2bfloat16(((i * 7919 + blockIdx.x * 13) % 1024 - 512) * 1e-3f);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  int group = threadIdx.x / 128, next = 1 + (group + 1) % GROUPS;
  float s[64], t[32], e0 = 0, e1 = 0;
  uint32_t m0 = ~0u, m1 = ~0u, at0 = 0, at1 = 0, q = k + 32768 + 16384 * group;
#pragma unroll
  for (int i = 0; i < 64; i++) { s[i] = i * scale; t[i % 32] = i + threadIdx.x; }
  if (TURNS && PRODUCTS && group == GROUPS - 1) asm volatile("bar.arrive 1, 256;" ::: "memory");
  long long start = clock64();
  for (int tile = 0; tile < TILES; tile++) {
    if (PRODUCTS) {
      if (TURNS) asm volatile("bar.sync %0, 256;" :: "r"(1 + group) : "memory");
      multiply(s, q, k);
      if (TURNS) asm volatile("bar.arrive %0, 256;" :: "r"(next) : "memory");
      finish(s);
    } else {
#pragma unroll
      for (int i = 0; i < 64; i++) asm volatile("" : "+f"(s[i]));
    }
    work<WORK, CHAINS>(s, t, e0, e1, scale, m0, m1, at0, at1);
  }
  long long stop = clock64();
  if (TURNS && PRODUCTS && group == 0) asm volatile("bar.sync 1, 256;" ::: "memory");
  float total = e0 + e1 + m0 + m1 + at0 + at1;
#pragma unroll
  for (int i = 0; i < 64; i++) total += s[i] + t[i % 32];
  sink[blockIdx.x * 128 * GROUPS + threadIdx.x] = total;
  if (threadIdx.x % 128 == 0) cycles[blockIdx.x * GROUPS + group] = stop - start;
}

template <int WORK, int CHAINS, int GROUPS, bool TURNS, bool PRODUCTS> void measure() {
  auto f = kernel<WORK, CHAINS, GROUPS, TURNS, PRODUCTS>;
  static long long *cycles = nullptr;
  static float *sink;
  if (!cycles) { cudaMalloc(&cycles, 132 * 4 * 8); cudaMalloc(&sink, 132 * 512 * 4); }
  cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, 150000);
  std::vector<double> all;
  for (int i = 0; i < 7; i++) {
    f<<<132, 128 * GROUPS, 150000>>>(cycles, sink, 0.01f);
    std::vector<long long> each(132 * GROUPS);
    cudaMemcpy(each.data(), cycles, each.size() * 8, cudaMemcpyDeviceToHost);
    all.push_back(*std::max_element(each.begin(), each.end()));
  }
  std::sort(all.begin(), all.end());
  cudaError_t error = cudaGetLastError();
  if (error) printf("%s\n", cudaGetErrorString(error));
  printf(" %.0f |", all[3] / TILES / GROUPS);
}

template <int WORK, int CHAINS> void row(const char *what) {
  printf("| %s |", what);
  measure<WORK, CHAINS, 3, false, false>();
  measure<WORK, CHAINS, 1, false, true>();
  measure<WORK, CHAINS, 2, false, true>();
  measure<WORK, CHAINS, 3, false, true>();
  measure<WORK, CHAINS, 3, true, true>();
  measure<WORK, CHAINS, 4, false, true>();
  printf("\n");
}

int main() {
  printf("| a weight | work alone | one group | two | three | three in turns | four |\n");
  printf("|---|---|---|---|---|---|---|\n");
  row<4, 32>("4 additions, 32 chains");
  row<4, 4>("4 additions, 4 chains");
  row<4, 3>("4 additions, 3 chains");
  row<4, 2>("4 additions, 2 chains");
  row<6, 32>("6 additions, 32 chains");
  row<6, 2>("6 additions, 2 chains");
  row<10, 1>("logarithm, exponential, received, entropy");
  row<11, 1>("and the peak");
  row<12, 1>("and its group");
}
"""


def main() -> None:
    """Compile, run, and print the cycles of a multiprocessor for a tile."""
    source = SOURCE.replace("LIST", ", ".join(f"%{i}" for i in range(REGISTERS)))
    source = source.replace("OPERANDS", ", ".join(f'"+f"(s[{i}])' for i in range(REGISTERS)))
    with tempfile.TemporaryDirectory() as folder:
        file, program = Path(folder, "products.cu"), Path(folder, "products")
        file.write_text(source)
        target = "-gencode=arch=compute_90a,code=sm_90a"
        subprocess.run(["nvcc", "-O3", "-std=c++17", target, "-o", program, file], check=True)  # noqa: S607
        subprocess.run([program], check=True)


if __name__ == "__main__":
    main()
