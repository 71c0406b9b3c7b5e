// A note and a label on an event.
import { useEffect, useRef } from "preact/hooks";
import { onCommand } from "../keys";
import { noteCount, noteOf, setNote } from "./notes";

const LABELS = ["", "good", "bad", "question", "wrong turn"];

export function NoteForm({ trace, event }: { trace: string; event: string }) {
  const text = useRef<HTMLTextAreaElement>(null);
  noteCount.value;
  const note = noteOf(trace, event);
  useEffect(() => onCommand("note", () => text.current?.focus()), []);
  return (
    <div class="note-form">
      <div class="row">
        <h3>Note</h3>
        <label>Label <select value={note.label}
          onChange={(change) => setNote(trace, event, { ...note, label: change.currentTarget.value })}>
          {LABELS.map((label) => <option key={label} value={label}>{label || "none"}</option>)}
        </select></label>
      </div>
      <textarea ref={text} rows={2} aria-label="Note" placeholder="Kept in this browser only (N)" value={note.text}
        onChange={(change) => setNote(trace, event, { ...note, text: change.currentTarget.value })}
        onKeyDown={(key) => { if (key.key === "Escape") key.currentTarget.blur(); }} />
    </div>
  );
}
