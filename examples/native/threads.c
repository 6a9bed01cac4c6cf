// Run one library in eight threads at the same time, each with a separate workspace.
//
//     cc -O2 threads.c libdigits.a -lpthread -o threads && ./threads images.f32

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "digits.h"

enum { THREADS = 8, RUNS = 50, ROWS = 37 };

static float images[ROWS * DIGITS_INPUT_0_SIZE];
static float expected[ROWS * DIGITS_OUTPUT_0_SIZE];

static digits_status compute(void *workspace, float *scores) {
    const void *inputs[] = {images};
    void *outputs[] = {scores};
    return digits_run(workspace, ROWS, inputs, outputs);
}

// Returns NULL if each run gave the expected bits.
static void *work(void *unused) {
    (void)unused;
    void *workspace = malloc(digits_workspace_size(0));
    float *scores = malloc(sizeof expected);
    int wrong = !workspace || !scores || digits_init(workspace, NULL, 0);
    for (int i = 0; i < RUNS && !wrong; i++) {
        memset(scores, 0, sizeof expected);
        wrong = compute(workspace, scores) || memcmp(scores, expected, sizeof expected);
    }
    free(scores);
    free(workspace);
    return wrong ? images : NULL;
}

int main(int argc, char **argv) {
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (!file || fread(images, sizeof images, 1, file) != 1) return 1;
    fclose(file);
    // The threads of the library, which help the first caller.
    if (argc > 2 && digits_threads(atoi(argv[2]), -1)) return 2;
    void *workspace = malloc(digits_workspace_size(0));
    if (!workspace || digits_init(workspace, NULL, 0)) return 3;
    if (compute(workspace, expected)) return 4;
    free(workspace);

    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, NULL)) return 5;
    int wrong = 0;
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        wrong += result != NULL;
    }
    digits_stop();
    printf("%d of %d threads computed the same bits\n", THREADS - wrong, THREADS);
    return wrong;
}
