import { expect, test } from "vitest";
import { decodeBins, decodeColumns, fromBase64, unzip } from "../src/decode";
import { SourceError } from "../src/source";

/** Bytes as the server writes them: length, JSON, padding to 8, blocks at multiples of 8. */
export function pack(head: object, blocks: Uint8Array[]): Uint8Array {
  const json = new TextEncoder().encode(JSON.stringify(head));
  const start = Math.ceil((4 + json.length) / 8) * 8;
  const size = blocks.reduce((sum, block) => Math.ceil(sum / 8) * 8 + block.length, 0);
  const bytes = new Uint8Array(start + size);
  new DataView(bytes.buffer).setUint32(0, json.length, true);
  bytes.set(json, 4);
  let at = start;
  for (const block of blocks) { bytes.set(block, at); at = Math.ceil((at + block.length) / 8) * 8; }
  return bytes;
}

const raw = (array: Float64Array | Uint16Array | Uint32Array): Uint8Array => new Uint8Array(array.buffer);

function sample(): Uint8Array {
  const head = {
    events: 3, edges: 1, ids: ["a", "b", "c"], numbers: [],
    columns: [
      { name: "t", dtype: "float64", offset: 0, length: 3 }, { name: "flags", dtype: "uint16", offset: 24, length: 3 },
      { name: "src", dtype: "uint32", offset: 32, length: 1 }, { name: "colour", dtype: "uint8", offset: 40, length: 3 },
    ],
  };
  return pack(head, [raw(new Float64Array([0, 1.5, 2.25])), raw(new Uint16Array([1, 0, 258])), raw(new Uint32Array([2])),
    new Uint8Array([7, 7, 7])]);
}

test("columns are read by their heads; absent ones are empty of meaning but of the right length, unknown ones are left", () => {
  const found = decodeColumns(sample());
  expect([...found.t]).toEqual([0, 1.5, 2.25]);
  expect([...found.flags]).toEqual([1, 0, 258]);
  expect([...found.src]).toEqual([2]);
  expect(found.tokens.length).toBe(3);
  expect(found.dst.length).toBe(1);
  expect(found.numbers).toBeNull();
  expect("colour" in found).toBe(false);
});

test("bytes that lie at an odd place are read all the same", () => {
  const bytes = sample();
  const moved = new Uint8Array(bytes.length + 3);
  moved.set(bytes, 3);
  expect([...decodeColumns(moved.subarray(3)).t]).toEqual([0, 1.5, 2.25]);
});

test("bytes that were cut are refused with a reason", () => {
  expect(() => decodeColumns(sample().subarray(0, 200))).toThrow(SourceError);
  expect(() => decodeColumns(new Uint8Array(2))).toThrow(/is empty/);
});

test("bins have a view for each level", () => {
  const head = { lanes: ["x", "y"], members: [[0], [1]], start: 0, end: 4,
    levels: [{ bins: 2, offset: 0 }, { bins: 1, offset: 8 }] };
  const found = decodeBins(pack(head, [new Uint8Array([0, 255, 1, 10, 2, 20, 5, 0]), new Uint8Array([0, 9, 2, 8])]));
  expect(found.levels.map((level) => [...level])).toEqual([[0, 255, 1, 10, 2, 20, 5, 0], [0, 9, 2, 8]]);
});

test("base64 and gzip come back as they were", async () => {
  const zipped = new Response(new Blob(["a trace ▨"]).stream().pipeThrough(new CompressionStream("gzip")));
  const packed = btoa(String.fromCharCode(...new Uint8Array(await zipped.arrayBuffer())));
  expect(new TextDecoder().decode(await unzip(fromBase64(packed)))).toBe("a trace ▨");
});
