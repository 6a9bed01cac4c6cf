/* Runs a library on memory that ends, or begins, where nothing may be touched. */

#define _DEFAULT_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "digits.h"

/* Bytes between two pages without rights, at the end or at the beginning. */
static unsigned char *guarded(size_t bytes, int at_end) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t inside = (bytes + page - 1) / page * page;
    unsigned char *memory = mmap(NULL, inside + 2 * page, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) exit(10);
    mprotect(memory, page, PROT_NONE);
    mprotect(memory + page + inside, page, PROT_NONE);
    return memory + page + (at_end ? inside - bytes : 0);
}

int main(int argc, char **argv) {
    if (argc < 2) return 9;
    int64_t most = atoi(argv[1]);
    for (int at_end = 0; at_end < 2; at_end++) {
        void *workspace = guarded(digits_workspace_size(most), at_end);
        if (digits_init(workspace, NULL, most)) return 1;
        for (int64_t n = 0; n <= most + 3; n += n < 20 ? 1 : 37) {
            size_t size = (size_t)n * DIGITS_INPUT_0_SIZE * sizeof(float);
            float *x = (float *)guarded(size, at_end);
            float *y = (float *)guarded(
                (size_t)n * DIGITS_OUTPUT_0_SIZE * sizeof(float), at_end);
            for (size_t i = 0; i < size / sizeof(float); i++) x[i] = (float)(i % 17);
            const void *inputs[] = {x};
            void *outputs[] = {y};
            if (digits_run(workspace, n, inputs, outputs)) return 2;
            for (int64_t i = 0; i < n * DIGITS_OUTPUT_0_SIZE; i++)
                if (!(y[i] >= 0 && y[i] <= 1)) return 3;
        }
    }
    puts("inside");
    return 0;
}
