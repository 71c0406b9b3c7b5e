// What is said about an event and about the trace, and one more note, label or score.
import { useEffect, useRef, useState } from "preact/hooks";
import { onCommand } from "../keys";
import { asProblem } from "../loaded";
import { moment } from "../numbers";
import { Plain } from "../plaintext";
import { Failure } from "../shell/states";
import type { AnnotationInfo } from "../shapes.gen";
import type { SourceError } from "../source";
import { source } from "../state";
import { annotate, inWords, loadNotes, noteCount, noteOf, said, saidAbout, setNote } from "./notes";

const LABELS = ["", "good", "bad", "question", "wrong turn"];

export function NoteForm({ trace, event, n }: { trace: string; event: string; n: number }) {
  useEffect(() => { void loadNotes(trace); }, [trace]);
  said.value;
  return (
    <div class="note-form">
      <Given title="Notes here" trace={trace} given={saidAbout(trace, n)} />
      <Given title="Notes on the trace" trace={trace} given={saidAbout(trace, -1)} />
      {source.value!.canWrite ? <Stored trace={trace} event={event} key={event} /> : <InThisBrowser trace={trace} event={event} />}
    </div>
  );
}

function Given({ title, trace, given }: { title: string; trace: string; given: AnnotationInfo[] }) {
  if (!given.length) return null;
  return (
    <section aria-label={title}>
      <h3>{title}</h3>
      <ul class="plain-list">
        {given.map((one) => (
          <li key={one.id}>
            <strong><Plain text={inWords(one)} /></strong> {one.text && <Plain text={one.text} />}{" "}
            <small class="quiet"><bdi>{one.by}</bdi>{one.is_model && (one.by.split(":")[0] === "fake" ? ", a test double" : ", a model")}, {moment(one.at)}</small>
            {source.value!.canWrite && <button type="button" class="plain" aria-label={`Take back: ${inWords(one)} ${one.text ?? ""}`}
              onClick={() => void annotate(trace, { remove: one.id })}>✕</button>}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Stored({ trace, event }: { trace: string; event: string }) {
  const field = useRef<HTMLTextAreaElement>(null);
  const [text, setText] = useState("");
  const [label, setLabel] = useState("");
  const [isWhole, setWhole] = useState(false);
  const [problem, setProblem] = useState<SourceError | null>(null);
  useEffect(() => onCommand("note", () => field.current?.focus()), []);
  const add = async () => {
    try {
      await annotate(trace, { ...(isWhole ? {} : { event }), ...(label && { label }), ...(text && { text }) });
      setText("");
      setLabel("");
      setProblem(null);
    } catch (error) {
      setProblem(asProblem(error));
    }
  };
  return (
    <form onSubmit={(submit) => { submit.preventDefault(); void add(); }}>
      <div class="row">
        <h3>Note</h3>
        <Labels value={label} onChange={setLabel} />
        <label><input type="checkbox" checked={isWhole} onChange={(change) => setWhole(change.currentTarget.checked)} /> about the whole
          trace</label>
        <button type="submit" disabled={!text && !label}>Add</button>
      </div>
      <textarea ref={field} rows={2} aria-label="Note" placeholder="Kept in the store, with your name (N)" value={text}
        onInput={(change) => setText(change.currentTarget.value)}
        onKeyDown={(key) => {
          if (key.key === "Escape") key.currentTarget.blur();
          if (key.key === "Enter" && (key.ctrlKey || key.metaKey)) void add();
        }} />
      {problem && <Failure error={problem} />}
    </form>
  );
}

function InThisBrowser({ trace, event }: { trace: string; event: string }) {
  const field = useRef<HTMLTextAreaElement>(null);
  noteCount.value;
  const note = noteOf(trace, event);
  useEffect(() => onCommand("note", () => field.current?.focus()), []);
  return (
    <>
      <div class="row">
        <h3>Note</h3>
        <Labels value={note.label} onChange={(label) => setNote(trace, event, { ...note, label })} />
      </div>
      <textarea ref={field} rows={2} aria-label="Note" placeholder="Kept in this browser only (N)" value={note.text}
        onChange={(change) => setNote(trace, event, { ...note, text: change.currentTarget.value })}
        onKeyDown={(key) => { if (key.key === "Escape") key.currentTarget.blur(); }} />
    </>
  );
}

function Labels({ value, onChange }: { value: string; onChange: (label: string) => void }) {
  return (
    <label>Label <select value={value} onChange={(change) => onChange(change.currentTarget.value)}>
      {LABELS.map((label) => <option key={label} value={label}>{label || "none"}</option>)}
    </select></label>
  );
}
