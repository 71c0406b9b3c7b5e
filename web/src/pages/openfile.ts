// A file that was dropped on the page or chosen. Always true: it is read, never run: a one-file page gives its data block and
// nothing else of it; for other files the command that imports them is said.
import { batch } from "@preact/signals";
import { FileSource, readBlock } from "../file";
import { traceLink } from "../router";
import { SourceError } from "../source";
import { go, source, trace } from "../state";

/** Name of the file that is open in place of the store; "" for the store. */
export async function openFile(file: File): Promise<string> {
  const head = await file.slice(0, 4096).text();
  if (!/^\s*<(?:!doctype html|html)/i.test(head)) {
    throw new SourceError(`${file.name} is not a page that Counterpoint exported. To read logs and traces, use this command:`,
      `counterpoint import ${quoted(file.name)}`);
  }
  // The parser makes no live document: scripts in it do not run and nothing in it is fetched.
  const page = new DOMParser().parseFromString(await file.text(), "text/html");
  const block = page.getElementById("counterpoint-data");
  if (!block) throw new SourceError(`${file.name} contains no trace.`, "counterpoint export TRACE --to html -o FILE");
  const opened = new FileSource(await readBlock(block));
  const ids = Object.keys(opened.block.traces);
  batch(() => {
    source.value = opened;
    trace.value = null;
    go(ids.length === 1 ? traceLink(ids[0]!) : { page: "traces", query: "" });
  });
  return file.name;
}

/** A name as a shell takes it. */
export function quoted(name: string): string {
  return /^[\w./@%+=:-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`;
}
