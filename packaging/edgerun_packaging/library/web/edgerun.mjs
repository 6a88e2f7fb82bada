// A packed model in a browser, a worker, node or deno: the ten functions of edgerun_model.h as a class.
//
//   const model = await Model.load(await fetch("model.wasm"));   // or the bytes of the file
//   const outputs = model.run({ image: { data: new Float32Array(64), shape: [1, 1, 8, 8] } });
//   outputs.probabilities.data, outputs.probabilities.shape
//
// Throws an Error with the runtime's sentence for everything that is wrong with a file, a name, a shape or a value.

const INPUT = 0;
const OUTPUT = 1;
const PORT_BYTES = 88; // edgerun_port of edgerun_model.h on wasm32

// edgerun_dtype -> the array of its values. Half floats are given and returned as their bits.
const ARRAYS = [
  null, Float32Array, Float64Array, Uint16Array, Uint16Array, Int8Array, Int16Array, Int32Array, BigInt64Array,
  Uint8Array, Uint16Array, Uint32Array, BigUint64Array, Uint8Array,
];
export const DTYPES = [
  null, "f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool",
];

// The system interface: a model asks for the time and for its environment, which is empty; everything else is answered
// with "not supported".
function system(memory) {
  const functions = {
    clock_time_get: (_clock, _precision, at) => {
      new DataView(memory().buffer).setBigUint64(at, BigInt(Math.round(performance.now() * 1e6)), true);
      return 0;
    },
    environ_get: () => 0,
    environ_sizes_get: (count, bytes) => {
      new DataView(memory().buffer).setUint32(count, 0, true);
      new DataView(memory().buffer).setUint32(bytes, 0, true);
      return 0;
    },
    proc_exit: (code) => { throw new Error(`the module ended with status ${code}`); },
  };
  return new Proxy({}, { get: (_target, name) => functions[name] ?? (() => 52) });
}

export class Model {
  // source: a Response, an ArrayBuffer or a typed array.
  static async load(source) {
    const bytes = typeof source.arrayBuffer === "function" ? await source.arrayBuffer() : source;
    let instance;
    const imports = { wasi_snapshot_preview1: system(() => instance.exports.memory) };
    ({ instance } = await WebAssembly.instantiate(bytes, imports));
    instance.exports._initialize?.();
    return new Model(instance.exports);
  }

  constructor(exports) {
    this.wasm = exports;
    this.held = new Map(); // input index -> address and bytes of its values
    this.port = this.take(PORT_BYTES);
    const at = this.take(4);
    const status = exports.edgerun_open(0, 0, 1, at);
    this.handle = this.view().getUint32(at, true);
    exports.free(at);
    if (status) throw this.error();
    this.inputs = this.ports(INPUT);
  }

  get outputs() { return this.ports(OUTPUT); }
  get version() { return this.text(this.wasm.edgerun_version()); }
  get memoryBytes() { return this.wasm.memory.buffer.byteLength; }

  // values: {name: {data, shape}}, or {name: data} where the model fixes the shape. Gives {name: {data, shape, dtype}}.
  run(values) {
    for (const name of Object.keys(values))
      if (!this.inputs.some((port) => port.name === name))
        throw new Error(`there is no input ${name}; there are ${this.inputs.map((port) => port.name).join(", ")}`);
    this.inputs.forEach((port, index) => {
      const given = values[port.name];
      if (given === undefined) throw new Error(`input ${port.name} is missing`);
      const data = ArrayBuffer.isView(given) ? given : given.data;
      const shape = ArrayBuffer.isView(given) ? port.shape : given.shape;
      this.set(port, index, data, shape);
    });
    if (this.wasm.edgerun_run(this.handle)) throw this.error();
    const results = {};
    this.outputs.forEach((port, index) => {
      const at = this.wasm.edgerun_output_data(this.handle, index);
      const Values = ARRAYS[port.dtype];
      const count = port.bytes / Values.BYTES_PER_ELEMENT;
      results[port.name] = {
        data: new Values(this.wasm.memory.buffer, at, count).slice(), shape: port.shape, dtype: DTYPES[port.dtype],
      };
    });
    return results;
  }

  close() {
    this.wasm.edgerun_close(this.handle);
    for (const { at } of this.held.values()) this.wasm.free(at);
    this.held.clear();
    this.handle = 0;
  }

  set(port, index, data, shape) {
    const Values = ARRAYS[port.dtype];
    if (!(data instanceof Values)) throw new Error(`input ${port.name} takes a ${Values.name} (${DTYPES[port.dtype]})`);
    const count = shape.reduce((product, size) => product * size, 1);
    if (data.length !== count)
      throw new Error(`input ${port.name} of shape ${shape.join(" x ")} has ${count} values, not ${data.length}`);
    let place = this.held.get(index);
    if (!place || place.bytes < data.byteLength) {
      if (place) this.wasm.free(place.at);
      place = { at: this.take(Math.max(data.byteLength, 8)), bytes: data.byteLength };
      this.held.set(index, place);
    }
    new Values(this.wasm.memory.buffer, place.at, data.length).set(data);
    const dims = this.take(64);
    shape.forEach((size, k) => this.view().setBigInt64(dims + 8 * k, BigInt(size), true));
    const status = this.wasm.edgerun_set_input(this.handle, index, place.at, dims, shape.length);
    this.wasm.free(dims);
    if (status) throw this.error();
  }

  ports(side) {
    const found = [];
    for (let index = 0; index < this.wasm.edgerun_count(this.handle, side); index++) {
      if (this.wasm.edgerun_describe(this.handle, side, index, this.port)) throw this.error();
      const view = this.view();
      const rank = view.getInt32(this.port + 8, true);
      const shape = Array.from({ length: rank }, (_, k) => Number(view.getBigInt64(this.port + 16 + 8 * k, true)));
      found.push({
        name: this.text(view.getUint32(this.port, true)), dtype: view.getInt32(this.port + 4, true), shape,
        bytes: Number(view.getBigUint64(this.port + 80, true)),
      });
    }
    return found;
  }

  take(bytes) {
    const at = this.wasm.malloc(bytes);
    if (!at) throw new Error(`no memory for ${bytes} bytes`);
    return at;
  }

  view() { return new DataView(this.wasm.memory.buffer); }
  error() { return new Error(this.text(this.wasm.edgerun_error())); }
  text(at) {
    const bytes = new Uint8Array(this.wasm.memory.buffer);
    return new TextDecoder().decode(bytes.subarray(at, bytes.indexOf(0, at)));
  }
}
