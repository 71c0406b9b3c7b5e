// Notes on events. Always true: a note stays in this browser; it is not written into the trace.
import { signal } from "@preact/signals";
import { keep, recall } from "../state";

export interface Note { label: string; text: string }

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
