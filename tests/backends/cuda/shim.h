// A device of one block at a time on the processor: what generated kernels use of CUDA.
//
// A block's threads are fibers. Each runs until a barrier, where the next one goes on;
// the order of threads is the caller's, so that a result that depends on it shows. If
// every fiber waits and none can go on, threads took different ways to a barrier.
#pragma once
#define HOST
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <setjmp.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads, blocks)
#define __shared__ static

struct Index { unsigned x, y, z; };
static Index threadIdx, blockIdx, blockDim, gridDim;

template <class To, class From> static inline To same_bits(From x) {
  To y; static_assert(sizeof x == sizeof y, ""); memcpy(&y, &x, sizeof x); return y;
}
static inline float __uint_as_float(unsigned x) { return same_bits<float>(x); }
static inline unsigned __float_as_uint(float x) { return same_bits<unsigned>(x); }
static inline float __int_as_float(int x) { return same_bits<float>(x); }
static inline long long __double_as_longlong(double x) {
  return same_bits<long long>(x);
}
static inline double __longlong_as_double(long long x) { return same_bits<double>(x); }
static inline float half_to_float(unsigned short x) {
  return (float)same_bits<_Float16>(x);
}
static inline unsigned short float_to_half(float x) {
  return same_bits<unsigned short>((_Float16)x);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}

template <class T> static inline T min(T a, T b) { return b < a ? b : a; }
template <class T> static inline T max(T a, T b) { return a < b ? b : a; }

// The inverse of erf: a start that is good to 1e-2, then Newton's method.
static double erfinv(double y) {
  if (!(fabs(y) < 1)) return fabs(y) == 1 ? y * INFINITY : NAN;
  double l = log((1 - y) * (1 + y)), t = 2 / (M_PI * 0.147) + l / 2;
  double x = copysign(sqrt(sqrt(t * t - l / 0.147) - t), y);
  for (int k = 0; k < 4; ++k) {
    double wrong = fabs(y) < 0.5 ? erf(x) - y
                 : y > 0 ? (1 - y) - erfc(x) : erfc(-x) - (1 + y);
    x -= wrong / (2 / sqrt(M_PI) * exp(-x * x));
  }
  return x;
}
static inline float erfinvf(float y) { return (float)erfinv((double)y); }

static const int MOST = 1024;
static const size_t STACK = 64 << 10;
// Fibers are made once, and go on from block to block: a jump is no system call.
static jmp_buf scheduler, fibers[MOST];
static bool done[MOST], made[MOST];
static int running, threads, progress;
struct Barrier { int arrived, turn; };
static Barrier of_block, of_warp[MOST / 32];
static unsigned long long lanes[MOST];
static void (*body)(void**);
static void** body_arguments;

static void go_on() { if (!_setjmp(fibers[running])) _longjmp(scheduler, 1); }
static void wait_for(Barrier& b, int count) {
  int turn = b.turn;
  ++progress;
  if (++b.arrived == count) { b.arrived = 0; ++b.turn; return; }
  while (b.turn == turn) go_on();
}
static void __syncthreads() { wait_for(of_block, threads); }
static void __syncwarp() { wait_for(of_warp[running / 32], threads < 32 ? threads : 32); }
template <class T> static T __shfl_xor_sync(unsigned, T x, int bits) {
  int warp = running / 32, width = threads < 32 ? threads : 32;
  memcpy(&lanes[running], &x, sizeof x);
  wait_for(of_warp[warp], width);
  T y; memcpy(&y, &lanes[running ^ bits], sizeof y);
  wait_for(of_warp[warp], width);
  return y;
}
static void enter() {
  for (;;) {
    body(body_arguments);
    done[running] = true;
    ++progress;
    go_on();
  }
}
static void resume(int thread) {
  if (_setjmp(scheduler)) return;
  if (made[thread]) _longjmp(fibers[thread], 1);
  made[thread] = true;
  ucontext_t start;
  getcontext(&start);
  start.uc_stack.ss_sp = malloc(STACK);
  start.uc_stack.ss_size = STACK;
  makecontext(&start, enter, 0);
  setcontext(&start);
}
static void place(int thread) {
  running = thread;
  threadIdx = {thread % blockDim.x, thread / blockDim.x % blockDim.y,
               thread / blockDim.x / blockDim.y};
}
static void run_block(bool in_fibers, bool backwards) {
  if (!in_fibers) {
    for (int t = 0; t < threads; ++t) {
      place(backwards ? threads - 1 - t : t);
      body(body_arguments);
    }
    return;
  }
  memset(done, 0, sizeof done);
  of_block = {0, 0};
  memset(of_warp, 0, sizeof of_warp);
  for (int left = threads; left;) {
    left = 0;
    progress = 0;
    for (int t = 0; t < threads; ++t) {
      int thread = backwards ? threads - 1 - t : t;
      if (done[thread]) continue;
      place(thread);
      resume(thread);
      left += !done[thread];
    }
    if (left && !progress) { fprintf(stderr, "a barrier that not all reach\n"); abort(); }
  }
}
static void run_grid(void (*kernel)(void**), void** arguments, const unsigned* sizes,
                     bool in_fibers, bool backwards) {
  body = kernel;
  body_arguments = arguments;
  gridDim = {sizes[0], sizes[1], sizes[2]};
  blockDim = {sizes[3], sizes[4], sizes[5]};
  threads = sizes[3] * sizes[4] * sizes[5];
  for (unsigned z = 0; z < gridDim.z; ++z)
    for (unsigned y = 0; y < gridDim.y; ++y)
      for (unsigned x = 0; x < gridDim.x; ++x) {
        blockIdx = {x, y, z};
        run_block(in_fibers, backwards);
      }
}
