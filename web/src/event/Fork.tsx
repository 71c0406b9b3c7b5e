// A fork: change one event, see what would have come of it. Always true: the trace itself is not touched.
import { useEffect, useRef, useState } from "preact/hooks";
import type { EventDetail } from "../shapes.gen";
import { Failure } from "../shell/states";
import { say } from "../shell/toast";
import { go, source, trace } from "../state";

type Kind = "delete" | "substitute" | "force";
const KINDS: [Kind, string, string][] = [
  ["delete", "Delete", "As if the event had not happened."],
  ["substitute", "Substitute", "Another text in its place: plain text, or JSON."],
  ["force", "Force", "Another decision in its place, as JSON."],
];

/** What the form needs to hold before it can be sent. */
export function fault(kind: Kind, value: string): string | null {
  if (kind === "delete") return null;
  if (!value.trim()) return "Write what to put in its place.";
  if (kind !== "force") return null;
  try { JSON.parse(value); return null; } catch { return 'This is not JSON. Write for example {"spawn": 2} or {"stop": true}.'; }
}

/** Why the trace on the screen cannot be forked. */
export function whyNoFork(): string {
  if (!source.value?.canWrite) return "This page is a file: open the trace with counterpoint view to fork it.";
  return trace.value?.about.fork_refusal ?? "This trace cannot be run again.";
}

/** The button: where it cannot be pressed it says why, to the pointer, to a press and to a screen reader. */
export function ForkButton(props: { canFork: boolean; title: string; isOpen?: boolean; onFork: () => void }) {
  const why = props.canFork ? null : whyNoFork();
  return (
    <button type="button" class={why ? "is-off" : ""} aria-disabled={why !== null} aria-expanded={why ? undefined : props.isOpen}
      aria-description={why ?? undefined} title={why ?? props.title} onClick={() => (why ? say(why) : props.onFork())}>Fork</button>
  );
}

export function ForkForm({ event, onClose }: { event: EventDetail; onClose: () => void }) {
  const [kind, setKind] = useState<Kind>("delete");
  const [value, setValue] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => form.current?.querySelector("input")?.focus(), []);
  const choose = (next: Kind): void => {
    setKind(next);
    setValue(next === "substitute" ? event.text ?? "" : next === "force" ? '{"stop": true}' : "");
  };
  const wrong = fault(kind, value);
  const send = async (submit: Event): Promise<void> => {
    submit.preventDefault();
    const id = trace.value!.id;
    if (wrong) return;
    setBusy(true);
    setError(null);
    try {
      const made = await source.value!.fork(id, { kind, event: event.id, value: kind === "delete" ? null : value });
      say(made.line);
      go({ page: "diff", a: id, b: made.id });
    } catch (failed) {
      setError(failed);
      setBusy(false);
    }
  };
  return (
    <form ref={form} class="fork" onSubmit={(submit) => void send(submit)}
      onKeyDown={(key) => { if (key.key === "Escape") onClose(); }} aria-label="Fork">
      <fieldset>
        <legend>Fork at {event.id}</legend>
        {KINDS.map(([name, text, about]) => (
          <label key={name}><input type="radio" name="fork-kind" checked={kind === name}
            onChange={() => choose(name)} /> {text} <span class="quiet">{about}</span></label>
        ))}
      </fieldset>
      {kind !== "delete" && (
        <label class="fork-value">{kind === "force" ? "Decision, JSON" : "Text in its place"}
          <textarea rows={kind === "force" ? 3 : 8} value={value} onInput={(input) => setValue(input.currentTarget.value)}
            spellcheck={false} />
        </label>
      )}
      {wrong && <p class="quiet" role="status">{wrong}</p>}
      {error !== null && <Failure error={error} />}
      <div class="row">
        <button type="submit" class="main" disabled={isBusy || wrong !== null}>{isBusy ? "Running…" : "Fork and compare"}</button>
        <button type="button" onClick={onClose}>Cancel</button>
      </div>
    </form>
  );
}
