"""The main program of an exported model: it reads images and prints results."""

from __future__ import annotations

from nnhw.ir import Graph
from nnhw.ir.types import IntType

from .c_text import c_type
from .tail import result_name


def main_text(prefix: str, head: Graph, body: Graph, tail: Graph, is_recurrent: bool = False) -> str:
    """Return the text of `NAME_main.c`, which reads .npy or raw float32 from a file or standard input.

    Parameters
    ----------
    prefix: name of the model in C.
    is_recurrent: the images of a file are the steps of one sequence.
    """
    image = head.inputs[0].type
    results = "\n".join(
        f"        static double {result_name(tail, k)}[{node.type.size}];" for k, node in enumerate(tail.output_nodes)
    )
    printed = "\n".join(
        f"            print_row({result_name(tail, k)}, {node.type.size}, {int(isinstance(node.type.dtype, IntType))});"
        for k, node in enumerate(tail.output_nodes)
    )
    names = ", ".join(result_name(tail, k) for k in range(len(tail.outputs)))
    entry, result = body.inputs[0].type, body.output_nodes[0].type
    replaced = {
        "NAME": prefix,
        "BIG": prefix.upper(),
        "SIZES": "".join(f"{size}, " for size in image.shape),
        "SHAPE": ", ".join(map(str, image.shape)),
        "ITYPE": c_type(entry.int_dtype),
        "OTYPE": c_type(result.int_dtype),
        "RESULTS": results,
        "PRINTED": printed,
        "RESULT_NAMES": names,
        "STATE": f"    static {prefix}_state state;\n" if is_recurrent else "",
        "RESET": f"    {prefix}_reset(&state);\n" if is_recurrent else "",
        "RUN": f"{prefix}_{'step(codes, answer, &state' if is_recurrent else 'run(codes, answer'}, &scratch)",
    }
    text = _TEXT
    for key, value in replaced.items():
        text = text.replace(f"@{key}@", value)
    return text


_TEXT = r"""/* FILE [--codes]: prints a line for each image of FILE; without FILE, or with -, of standard input.

   A FILE begins as .npy does, and holds float32, int8 or uint8 in C order; else it is raw float32, image by image. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "@NAME@.h"

static int fail(const char *what)
{
    fprintf(stderr, "@NAME@: %s\n", what);
    return 1;
}

static void print_row(const double *values, int count, int whole)
{
    for (int i = 0; i < count; ++i) {
        printf(whole ? "%s%.0f" : "%s%.17g", i ? " " : "", values[i]);
    }
    printf("\n");
}

static char text[4096];

/* Reads the header of a .npy file behind its first six bytes; returns the element type, 0 for one that is not known. */
static char npy_type(FILE *file)
{
    unsigned char head[6];
    size_t size;
    char *found;
    if (fread(head, 1, 2, file) != 2 || fread(head + 2, 1, 2, file) != 2) {
        return 0;
    }
    size = (size_t)head[2] + 256u * head[3];
    if (head[0] > 1) {
        if (fread(head + 4, 1, 2, file) != 2 || head[4] || head[5]) {
            return 0;
        }
    }
    if (size >= sizeof text || fread(text, 1, size, file) != size || strstr(text, "True")) {
        return 0;
    }
    found = strstr(text, "'descr'");
    if (!found) {
        return 0;
    }
    return strstr(text, "'<f4'") ? 'f' : strstr(text, "'|u1'") ? 'u' : strstr(text, "'|i1'") ? 'i' : 0;
}

/* Returns whether the shape in the header of a .npy file ends with that of an image: as many numbers in another order,
   such as the channels last, would give wrong answers. */
static int fits(const char *shape)
{
    static const long wanted[] = {@SIZES@0};
    const int rank = (int)(sizeof wanted / sizeof *wanted) - 1;
    long sizes[32];
    int count = 0;
    while (*shape && *shape != ')' && count < 32) {
        char *end;
        sizes[count] = strtol(shape, &end, 10);
        count += end != shape;
        shape = end + (*end == ',' || (end == shape && *end != ')'));
    }
    if (count < rank) {
        return 0;
    }
    for (int i = 0; i < rank; ++i) {
        if (sizes[count - rank + i] != wanted[i]) {
            return 0;
        }
    }
    return 1;
}

/* The first bytes of a file that is no .npy: they belong to its images, of which they may be one and a half. */
static unsigned char first[6];
static size_t first_count, first_used;

/* Reads bytes, the first ones of the file again; returns how many came. */
static size_t read_bytes(FILE *file, void *to, size_t size)
{
    size_t again = first_count - first_used < size ? first_count - first_used : size;
    memcpy(to, first + first_used, again);
    first_used += again;
    return again + fread((unsigned char *)to + again, 1, size - again, file);
}

/* Reads one image; returns 1 if it came, 0 behind the last one, -1 if it is cut. */
static int read_image(FILE *file, char type, float *image)
{
    static unsigned char bytes[@BIG@_IMAGE_COUNT];
    size_t size = type == 'f' ? sizeof *image * @BIG@_IMAGE_COUNT : sizeof bytes;
    size_t got = type == 'f' ? read_bytes(file, image, size) : read_bytes(file, bytes, size);
    if (got != size) {
        return got ? -1 : 0;
    }
    for (size_t i = 0; type != 'f' && i < size; ++i) {
        image[i] = type == 'u' ? (float)bytes[i] : (float)(bytes[i] < 128 ? bytes[i] : bytes[i] - 256);
    }
    return 1;
}

int main(int argc, char **argv)
{
    static float image[@BIG@_IMAGE_COUNT];
    static @ITYPE@ codes[@BIG@_INPUT_COUNT];
    static @OTYPE@ answer[@BIG@_OUTPUT_COUNT];
    static @NAME@_scratch scratch;
@STATE@    int got;
    char type = 'f';
    int only_codes = argc > 1 && !strcmp(argv[argc - 1], "--codes");
    const char *shape, *path = argc > 1 + only_codes ? argv[1] : "-";
    FILE *file;
    if (argc > 2 + only_codes) {
        return fail("it takes one FILE, and behind it --codes; nothing else");
    }
    file = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    if (!file) {
        return fail("the file cannot be opened");
    }
    first_count = fread(first, 1, sizeof first, file);
    if (first_count == sizeof first && !memcmp(first, "\x93NUMPY", sizeof first)) {
        type = npy_type(file);
        first_count = 0;
        if (!type) {
            return fail("the .npy file needs float32, uint8 or int8 in C order");
        }
        shape = strstr(text, "'shape'");
        shape = shape ? strchr(shape, '(') : 0;
        if (!shape || !fits(shape + 1)) {
            fprintf(stderr, "@NAME@: each image has the shape [@SHAPE@]; the .npy file has another one: %.*s\n",
                    shape ? (int)strcspn(shape, ")") + 1 : 0, shape ? shape : "");
            return 1;
        }
    }
@RESET@    while ((got = read_image(file, type, image)) != 0) {
@RESULTS@
        if (got < 0) {
            return fail("the last image is cut; each has the shape [@SHAPE@]");
        }
        for (int i = 0; i < @BIG@_IMAGE_COUNT; ++i) {
            if (image[i] != image[i]) {
                return fail("the image holds NaN, which has no code");
            }
        }
        @NAME@_quantize(image, codes);
        @RUN@;
        if (only_codes) {
            for (int i = 0; i < @BIG@_OUTPUT_COUNT; ++i) {
                printf("%s%lld", i ? " " : "", (long long)answer[i]);
            }
            printf("\n");
        } else {
            @NAME@_finish(answer, @RESULT_NAMES@);
@PRINTED@
        }
    }
    if (ferror(file)) {
        return fail("the file cannot be read");
    }
    if (file != stdin) {
        fclose(file);
    }
    return 0;
}
"""
