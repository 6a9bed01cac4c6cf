/* A model as a native library: written by toolkit 1.2.3 for "digits.so", x86_64-unknown-linux-gnu. Do not edit. */

#ifndef DIGITS_H
#define DIGITS_H

/*
 * Inputs, in row-major order:
 *     x: float32 (n, 3)
 *     number: int32 (n)
 * Outputs, in row-major order:
 *     scores/a: float32 (n, 3)
 *
 * Computes any number of rows, in batches of 1, 8.
 * For x86-64-v3, x86_64-unknown-linux-gnu.
 * Functions can run on different workspaces at the same time, on any
 * threads; digits_threads and digits_stop wait for the parallel run.
 *
 * Use:
 *
 *     #include "digits.h"
 *     #include <stdlib.h>
 *
 *     int main(void) {
 *         static float input_0[3];
 *         static int32_t input_1[1];
 *         static float output_0[3];
 *         const void *inputs[] = {input_0, input_1};
 *         void *outputs[] = {output_0};
 *         void *workspace = malloc(digits_workspace_size(1));
 *         digits_status status = digits_init(workspace, NULL, 1);
 *         if (status == DIGITS_OK)
 *             status = digits_run(workspace, 1, inputs, outputs);
 *         free(workspace);
 *         return (int)status;
 *     }
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DIGITS_ABI 1
#define DIGITS_TOOLKIT_VERSION "1.2.3"
#define DIGITS_TARGET "x86-64-v3"
#define DIGITS_TRIPLE "x86_64-unknown-linux-gnu"
#define DIGITS_BATCHES {1, 8}
#define DIGITS_BATCH_COUNT 2
#define DIGITS_MAX_BATCH 8
#define DIGITS_WORKSPACE_SIZE_1 24
#define DIGITS_WORKSPACE_SIZE_8 24
#define DIGITS_WORKSPACE_SIZE 24
#define DIGITS_WEIGHTS_SIZE 12
#define DIGITS_WEIGHTS_SHA256 "8e628779e6a74ee0b36991c10158f63cafec7d340ad4e075592502c8708524dd"
#define DIGITS_EMBEDS_WEIGHTS 1
#define DIGITS_TAKES_WHOLE_BATCHES 0
#define DIGITS_HAS_THREADS 0
#define DIGITS_HAS_STATES 0
#define DIGITS_INPUT_COUNT 2
#define DIGITS_INPUT_0_NAME "x"
#define DIGITS_INPUT_0_DTYPE 11
#define DIGITS_INPUT_0_RANK 2
#define DIGITS_INPUT_0_SHAPE {-1, 3}
#define DIGITS_INPUT_0_SIZE 3
#define DIGITS_INPUT_1_NAME "number"
#define DIGITS_INPUT_1_DTYPE 5
#define DIGITS_INPUT_1_RANK 1
#define DIGITS_INPUT_1_SHAPE {-1}
#define DIGITS_INPUT_1_SIZE 1
#define DIGITS_OUTPUT_COUNT 1
#define DIGITS_OUTPUT_0_NAME "scores/a"
#define DIGITS_OUTPUT_0_DTYPE 11
#define DIGITS_OUTPUT_0_RANK 2
#define DIGITS_OUTPUT_0_SHAPE {-1, 3}
#define DIGITS_OUTPUT_0_SIZE 3

typedef int32_t digits_status;
enum {
    DIGITS_OK = 0,
    DIGITS_BAD_ARGUMENT = 1, /* a null pointer or a negative number */
    DIGITS_NOT_INITIALIZED = 2, /* init has not initialized this workspace */
    DIGITS_BAD_BATCH = 3, /* the workspace does not support this number of rows */
    DIGITS_OUT_OF_RANGE = 4, /* an index of the inputs; the message names it */
    DIGITS_NO_WEIGHTS = 5, /* no weights were passed, and the library embeds none */
    DIGITS_NO_THREADS = 6, /* built without threads, or too few are available */
    DIGITS_UNSUPPORTED_PROCESSOR = 7 /* the processor lacks instructions of the library */
};

enum {
    DIGITS_BOOL = 0,
    DIGITS_INT8 = 1,
    DIGITS_UINT8 = 2,
    DIGITS_INT16 = 3,
    DIGITS_UINT16 = 4,
    DIGITS_INT32 = 5,
    DIGITS_UINT32 = 6,
    DIGITS_INT64 = 7,
    DIGITS_UINT64 = 8,
    DIGITS_FLOAT16 = 9,
    DIGITS_BFLOAT16 = 10,
    DIGITS_FLOAT32 = 11,
    DIGITS_FLOAT64 = 12
};

/* An input or output. In the shape, -1 is the batch. */
typedef struct {
    const char *name;
    int32_t dtype;
    int32_t rank;
    const int64_t *shape;
} digits_tensor;

/* The number of this interface: DIGITS_ABI, if the header and the library match. */
uint32_t digits_abi(void);

/* The inputs and outputs of run, and their number; count can be NULL. */
const digits_tensor *digits_inputs(int32_t *count);
const digits_tensor *digits_outputs(int32_t *count);

/* The supported batch sizes, ascending. */
const int64_t *digits_batches(int32_t *count);

/* The number of states that runs change; 0: a run depends only on its inputs. */
int32_t digits_state_count(void);

/* Bytes of a workspace for batches up to this size; 0: for all batches. */
size_t digits_workspace_size(int64_t max_batch);

/* Bytes of the weights, and their digest of 32 bytes. */
size_t digits_weights_size(void);
const uint8_t *digits_weights_sha256(void);

/* Initialize a workspace in memory of at least this size, which must not move. Each
   run reads the weights. NULL: the embedded weights of the library. */
digits_status digits_init(void *workspace, const void *weights, int64_t max_batch);

/* Compute n rows. Arrays are in row-major order, without gaps. */
digits_status digits_run(void *workspace, int64_t n, const void *const *inputs,
    void *const *outputs);

/* Reset the states to their values after init. */
digits_status digits_reset(void *workspace);

/* Set the number of threads for runs, including the calling thread. A waiting thread
   checks for work `spins` times before it sleeps; spins < 0: the default. If this
   number of threads is unavailable, no thread is started. */
digits_status digits_threads(int32_t count, int32_t spins);

/* End the threads. A workspace has no other resources: free its memory after use. */
void digits_stop(void);

/* The meaning of a status; the workspace can be NULL. */
const char *digits_message(const void *workspace, digits_status status);

#ifdef __cplusplus
}
#endif

#endif /* DIGITS_H */
