// Read images of digits from a file and print the class of each, in Go with cgo.
//
//     go build caller.go && ./caller images.f32
package main

// #cgo LDFLAGS: -L${SRCDIR} -ldigits -lpthread
// #include <stdlib.h>
// #include "digits.h"
//
// // cgo may not pass arrays of Go pointers, so C code calls the library.
// static digits_status run(void *workspace, int64_t n, const void *x, void *y) {
//     const void *inputs[] = {x};
//     void *outputs[] = {y};
//     return digits_run(workspace, n, inputs, outputs);
// }
import "C"

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"unsafe"
)

// A Model has a workspace in memory of C, whose address does not change.
type Model struct{ workspace unsafe.Pointer }

func NewModel() (*Model, error) {
	model := &Model{C.malloc(C.digits_workspace_size(0))}
	return model, model.check(C.digits_init(model.workspace, nil, 0))
}

func (model *Model) Run(images []float32) ([]float32, error) {
	count := len(images) / C.DIGITS_INPUT_0_SIZE
	scores := make([]float32, count*C.DIGITS_OUTPUT_0_SIZE)
	if count == 0 {
		return scores, nil
	}
	x, y := unsafe.Pointer(&images[0]), unsafe.Pointer(&scores[0])
	return scores, model.check(C.run(model.workspace, C.int64_t(count), x, y))
}

func (model *Model) Close() { C.free(model.workspace) }

func (model *Model) check(status C.digits_status) error {
	if status == C.DIGITS_OK {
		return nil
	}
	return errors.New(C.GoString(C.digits_message(model.workspace, status)))
}

func largest(scores []float32) (best int) {
	for i, score := range scores {
		if score > scores[best] {
			best = i
		}
	}
	return best
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	bytes, err := os.ReadFile(os.Args[1])
	must(err)
	images := make([]float32, len(bytes)/4)
	for i := range images {
		images[i] = math.Float32frombits(binary.LittleEndian.Uint32(bytes[4*i:]))
	}
	model, err := NewModel()
	must(err)
	defer model.Close()
	scores, err := model.Run(images)
	must(err)
	for ; len(scores) > 0; scores = scores[C.DIGITS_OUTPUT_0_SIZE:] {
		fmt.Println(largest(scores[:C.DIGITS_OUTPUT_0_SIZE]))
	}
}
