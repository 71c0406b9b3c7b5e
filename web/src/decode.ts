// Bytes to arrays. Always true: a view is laid over the bytes where they are aligned, and nothing is copied otherwise than for
// that.
import type { BinsHead, ColumnsHead } from "./shapes.gen";
import { COLUMNS } from "./shapes.gen";
import { SourceError, type Bins, type Columns } from "./source";

const KINDS = {
  float64: Float64Array, float32: Float32Array, uint32: Uint32Array, int32: Int32Array, uint16: Uint16Array, uint8: Uint8Array,
} as const;
type Kind = keyof typeof KINDS;
const EDGE_COLUMNS = new Set(["src", "dst", "edge"]);

/** The JSON at the beginning, and where the arrays begin: 4 bytes of length, the JSON, padding to 8. */
function opening<Head>(bytes: Uint8Array): { head: Head; start: number } {
  if (bytes.byteLength < 4) throw new SourceError("The data is empty.", "reload the page");
  const size = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  if (4 + size > bytes.byteLength) throw new SourceError("The data was cut short.", "reload the page");
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size))) as Head;
  return { head, start: Math.ceil((4 + size) / 8) * 8 };
}

/** The arrays of a trace, or of a window of one. */
export function decodeColumns(bytes: Uint8Array): Columns {
  const { head, start } = opening<ColumnsHead>(bytes);
  const arrays: Record<string, unknown> = {};
  for (const [name, dtype] of Object.entries(COLUMNS)) {
    const length = EDGE_COLUMNS.has(name) ? head.edges : head.events;
    arrays[name] = new KINDS[dtype](length);
  }
  for (const column of head.columns) {
    const Array = KINDS[column.dtype as Kind];
    if (!Array || !(column.name in COLUMNS)) continue;
    const from = bytes.byteOffset + start + column.offset;
    const size = column.length * Array.BYTES_PER_ELEMENT;
    if (start + column.offset + size > bytes.byteLength) throw new SourceError(`The column ${column.name} was cut short.`,
      "reload the page");
    arrays[column.name] = from % Array.BYTES_PER_ELEMENT === 0
      ? new Array(bytes.buffer as ArrayBuffer, from, column.length)
      : new Array(bytes.slice(start + column.offset, start + column.offset + size).buffer);
  }
  const ids = head.ids.length === 1 && head.events !== 1 ? head.ids[0]!.split("\n") : head.ids;
  const numbers = head.numbers.length ? Uint32Array.from(head.numbers) : null;
  return { n: head.events, ids, numbers, ...arrays } as Columns;
}

/** Every level of bins, a view over the bytes. */
export function decodeBins(bytes: Uint8Array): Bins {
  const { head, start } = opening<BinsHead>(bytes);
  const levels = head.levels.map((level) => {
    const from = start + level.offset;
    const to = from + head.lanes.length * level.bins * 2;
    if (to > bytes.byteLength) throw new SourceError("The bins were cut short.", "reload the page");
    return bytes.subarray(from, to);
  });
  return { head, levels };
}

/** Bytes from base64, whitespace allowed. */
export function fromBase64(text: string): Uint8Array {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

/** Unpacked by the browser itself, so that the page carries no unpacker. */
export async function unzip(bytes: Uint8Array): Promise<Uint8Array> {
  const stream = new Blob([bytes as BlobPart]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
