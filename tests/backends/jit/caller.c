/* Runs a library on several threads, each with a workspace of its own.
   caller WEIGHTS INPUT OUTPUT ROWS INPUT_ROW OUTPUT_ROW THREADS WORKERS */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifndef ALONE
#include <pthread.h>
#endif

size_t m_workspace_size(int64_t);
size_t m_weights_size(void);
int32_t m_init(void *, const void *, int64_t);
int32_t m_run(void *, int64_t, const void *const *, void *const *);
int32_t m_threads(int32_t, int32_t);
void m_stop(void);

static char *weights, *input;
static long rows, input_row, output_row;

static char *contents(const char *path, size_t size) {
    FILE *file = fopen(path, "rb");
    char *found = malloc(size ? size : 1);
    if (!file || fread(found, 1, size, file) != size) exit(10);
    fclose(file);
    return found;
}

static void *call(void *output) {
    char *workspace = malloc(m_workspace_size(0));
    const void *inputs[] = {input};
    void *outputs[] = {output};
    int32_t status = m_init(workspace, weights, 0);
    for (int turn = 0; turn < 3 && !status; ++turn)
        status = m_run(workspace, rows, inputs, outputs);
    free(workspace);
    if (status) exit(20 + status);
    return NULL;
}

int main(int count, char **given) {
    long threads = atol(given[7]), workers = atol(given[8]);
    rows = atol(given[4]), input_row = atol(given[5]), output_row = atol(given[6]);
    weights = contents(given[1], m_weights_size());
    input = contents(given[2], rows * input_row);
    char **outputs = malloc(threads * sizeof *outputs);
    for (long k = 0; k < threads; ++k) outputs[k] = malloc(rows * output_row);
    if (workers > 1 && m_threads(workers, 100)) return 11;
#ifdef ALONE
    for (long k = 0; k < threads; ++k) call(outputs[k]);
#else
    pthread_t handles[64];
    for (long k = 0; k < threads; ++k)
        if (pthread_create(handles + k, NULL, call, outputs[k])) return 12;
    for (long k = 0; k < threads; ++k) pthread_join(handles[k], NULL);
#endif
    m_stop();
    for (long k = 1; k < threads; ++k)
        if (memcmp(outputs[0], outputs[k], rows * output_row)) return 13;
    FILE *file = fopen(given[3], "wb");
    if (fwrite(outputs[0], 1, rows * output_row, file) != (size_t)(rows * output_row)) return 14;
    fclose(file);
    for (long k = 0; k < threads; ++k) free(outputs[k]);
    free(outputs), free(weights), free(input);
    return count == 9 ? 0 : 15;
}
