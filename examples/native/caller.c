// Read images of digits from a file and print the class of each, in C.
//
//     cc -O2 caller.c libdigits.a -lpthread -o caller && ./caller images.f32

#include <stdio.h>
#include <stdlib.h>

#include "digits.h"

#define CLASSES DIGITS_OUTPUT_0_SIZE

static int largest(const float *scores) {
    int best = 0;
    for (int i = 1; i < CLASSES; i++)
        if (scores[i] > scores[best]) best = i;
    return best;
}

static float *read_images(const char *path, int64_t *count) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    size_t bytes = (size_t)ftell(file);
    rewind(file);
    float *images = malloc(bytes);
    if (images && fread(images, 1, bytes, file) != bytes) {
        free(images);
        images = NULL;
    }
    fclose(file);
    *count = (int64_t)(bytes / (DIGITS_INPUT_0_SIZE * sizeof(float)));
    return images;
}

int main(int argc, char **argv) {
    int64_t count = 0;
    float *images = argc > 1 ? read_images(argv[1], &count) : NULL;
    float *scores = malloc((size_t)count * CLASSES * sizeof(float));
    // The caller owns all memory. The library allocates none.
    void *workspace = malloc(digits_workspace_size(0));
    if (!images || !scores || !workspace) return 1;

    const void *inputs[] = {images};
    void *outputs[] = {scores};
    digits_status status = digits_init(workspace, NULL, 0);
    if (status == DIGITS_OK) status = digits_run(workspace, count, inputs, outputs);
    if (status != DIGITS_OK) {
        fprintf(stderr, "%s\n", digits_message(workspace, status));
        return 1;
    }
    for (int64_t i = 0; i < count; i++) printf("%d\n", largest(scores + i * CLASSES));
    free(workspace);
    free(scores);
    free(images);
    return 0;
}
