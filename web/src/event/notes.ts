// Notes, labels and scores. Always true: with a server they are annotations in its store, which everybody who opens it sees; a file
// shows those it came with, and what is noted there stays in this browser.
import { signal } from "@preact/signals";
import type { AnnotationInfo, AnnotationList } from "../shapes.gen";
import type { AnnotationBody } from "../source";
import { keep, recall, source } from "../state";

export interface Note { label: string; text: string }

/** What is said about a trace; of another trace than the one on view it is not shown. */
export const said = signal<{ trace: string; given: AnnotationInfo[] }>({ trace: "", given: [] });

/** What is said about the event of this number, or with -1 about the trace as a whole. */
export function saidAbout(trace: string, n: number): AnnotationInfo[] {
  return said.value.trace === trace ? said.value.given.filter((one) => one.event === n) : [];
}

/** Asks for what is said. A file of before there were annotations has none. */
export async function loadNotes(trace: string): Promise<void> {
  const found = await source.value!.panel<AnnotationList>(trace, "annotations").catch(() => ({ given: [] }));
  said.value = { trace, given: found.given };
}

/** Adds one, or takes one back. */
export async function annotate(trace: string, what: AnnotationBody): Promise<void> {
  const found = await source.value!.annotate!(trace, what);
  said.value = { trace, given: found.given };
}

/** One in words: who, and the label or the score with its name. */
export function inWords(one: AnnotationInfo): string {
  const name = one.name === "note" || one.name === "label" ? "" : one.name;
  const value = one.label ?? (one.score === null ? "" : String(one.score));
  return [name, value].filter(Boolean).join(" = ");
}

// -- in a file --------------------------------------------------------------------------------------------------------------

/** Grows with every change, so that what shows notes is drawn again. */
export const noteCount = signal(0);

function read(trace: string): Record<string, Note> {
  try {
    const found: unknown = JSON.parse(recall(`notes-${trace}`) ?? "{}");
    return typeof found === "object" && found !== null ? (found as Record<string, Note>) : {};
  } catch {
    return {};
  }
}

export function noteOf(trace: string, event: string): Note {
  return { label: "", text: "", ...read(trace)[event] };
}

export function setNote(trace: string, event: string, note: Note): void {
  const all = read(trace);
  if (note.label || note.text) all[event] = note; else delete all[event];
  keep(`notes-${trace}`, JSON.stringify(all));
  noteCount.value += 1;
}
