// Read images of digits from a file and print the class of each, in JavaScript.
//
//     node caller.mjs images.f32
//
// In a browser, use `fetch` and `WebAssembly.instantiateStreaming` instead of
// `readFileSync`.

import { readFileSync } from "node:fs";

const ALIGNMENT = 64;

/** A model in WebAssembly, which can access only its own memory. */
class Digits {
  constructor(exports) {
    this.library = exports;
    this.top = exports.__heap_base.value;
    this.workspace = this.allocate(exports.digits_workspace_size(0n));
    this.pointers = this.allocate(8);
    this.start = this.top;
    this.check(exports.digits_init(this.workspace, 0, 0n));
  }

  static async load(path) {
    const { instance } = await WebAssembly.instantiate(readFileSync(path));
    return new Digits(instance.exports);
  }

  /** Memory behind what is in use; it is never given back. */
  allocate(bytes) {
    const place = Math.ceil(this.top / ALIGNMENT) * ALIGNMENT;
    this.top = place + bytes;
    const { memory } = this.library;
    const missing = this.top - memory.buffer.byteLength;
    if (missing > 0) memory.grow(Math.ceil(missing / 65536));
    return place;
  }

  /** Float32Array of (n, 64) pixels in, of (n, 10) scores out. */
  run(images) {
    const count = images.length / 64;
    this.top = this.start;
    const input = this.allocate(images.byteLength);
    const output = this.allocate(count * 10 * 4);
    const { memory, digits_run } = this.library;
    new Float32Array(memory.buffer, input, images.length).set(images);
    new Uint32Array(memory.buffer, this.pointers, 2).set([input, output]);
    const { workspace, pointers } = this;
    this.check(digits_run(workspace, BigInt(count), pointers, pointers + 4));
    return new Float32Array(memory.buffer, output, count * 10).slice();
  }

  check(status) {
    if (status === 0) return;
    const start = this.library.digits_message(this.workspace, status);
    const bytes = new Uint8Array(this.library.memory.buffer, start);
    throw new Error(new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0))));
  }
}

const bytes = readFileSync(process.argv[2]);
const images = new Float32Array(new Uint8Array(bytes).buffer);
const model = await Digits.load("web/digits.wasm");
const scores = model.run(images);
for (let i = 0; i < scores.length; i += 10) {
  const row = scores.subarray(i, i + 10);
  console.log(row.indexOf(Math.max(...row)));
}
