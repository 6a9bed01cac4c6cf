// Runs a module: wasm_caller.mjs MODULE WEIGHTS INPUT OUTPUT ROWS OUTPUT_ROW
import { readFileSync, writeFileSync } from "node:fs";

const [module, weights, input, output, rows, row] = process.argv.slice(2);
const { instance } = await WebAssembly.instantiate(readFileSync(module), {});
const m = instance.exports;
let end = m.__heap_base.value;

function reserve(size) {
  const at = Math.ceil(end / 64) * 64;
  end = at + size;
  const missing = end - m.memory.buffer.byteLength;
  if (missing > 0) m.memory.grow(Math.ceil(missing / 65536));
  return at;
}

function put(bytes) {
  const at = reserve(bytes.length);
  new Uint8Array(m.memory.buffer).set(bytes, at);
  return at;
}

const at = put(readFileSync(weights));
const x = put(readFileSync(input));
const size = Number(rows) * Number(row);
const y = reserve(size);
const tables = reserve(8);
const workspace = reserve(m.m_workspace_size(0n));
new Uint32Array(m.memory.buffer).set([x, y], tables / 4);
let status = m.m_init(workspace, at, 0n);
if (!status) status = m.m_run(workspace, BigInt(rows), tables, tables + 4);
writeFileSync(output, new Uint8Array(m.memory.buffer, y, size));
process.exit(status);
