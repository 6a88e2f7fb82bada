// Runs the packed model with node:  node run.mjs [--shape NAME=1,3,8,8] [NAME=values.raw]
// Inputs that are not given are zeros. Prints the ports, the outputs' ranges and the time of a run as JSON.
import { readFile } from "node:fs/promises";
import { Model, DTYPES } from "./edgerun.mjs";

const SIZES = { f32: Float32Array, f64: Float64Array, i32: Int32Array, i64: BigInt64Array, u32: Uint32Array,
  u64: BigUint64Array, i16: Int16Array, u16: Uint16Array, f16: Uint16Array, bf16: Uint16Array, i8: Int8Array,
  u8: Uint8Array, bool: Uint8Array };

async function main() {
  const shapes = {};
  const files = {};
  const words = process.argv.slice(2);
  while (words.length) {
    const shape = words[0] === "--shape";
    const [name, value] = (shape ? words[1] ?? "" : words[0]).split("=");
    if (!value) throw new Error(`cannot read ${words[0]}; write NAME=file.raw or --shape NAME=1,3,8,8`);
    if (shape) shapes[name] = value.split(",").map(Number);
    else files[name] = value;
    words.splice(0, shape ? 2 : 1);
  }
  const model = await Model.load(await readFile(new URL("model.wasm", import.meta.url)));
  const values = {};
  for (const port of model.inputs) {
    const shape = shapes[port.name] ?? port.shape.map((size) => Math.max(size, 1));
    const Values = SIZES[DTYPES[port.dtype]];
    let data = new Values(shape.reduce((product, size) => product * size, 1));
    if (files[port.name]) {
      const bytes = await readFile(files[port.name]);
      data = new Values(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
    }
    values[port.name] = { data, shape };
  }
  model.run(values);
  const start = performance.now();
  const outputs = model.run(values);
  const milliseconds = performance.now() - start;
  const text = (_key, value) => typeof value === "bigint" ? Number(value) : value;
  const rows = Object.entries(outputs).map(([name, { data, shape, dtype }]) => ({ name, dtype, shape, values: [...data] }));
  console.log(JSON.stringify({ version: model.version, run_ms: milliseconds, memory_bytes: model.memoryBytes, outputs: rows }, text));
}

main().catch((error) => { console.error(`run.mjs: ${error.message}`); process.exit(1); });
