// Waiting, failing, having nothing: said in words, with the command that helps. Always true: what was shown stays on the screen
// while something newer is asked for.
import { useEffect, useState } from "preact/hooks";
import { epoch } from "./state";
import { Plain } from "./plaintext";
import { copied } from "./shell/copying";
import { say } from "./shell/toast";
import { SourceError } from "./source";

export interface Loaded<T> {
  data: T | null;
  problem: SourceError | null;
  isWaiting: boolean;
}

/** Asks whenever `key` changes and when the server is back; `ask` null: nothing to ask. Data of another `about` is not shown. */
export function useLoaded<T>(about: string, key: string, ask: (() => Promise<T>) | null): Loaded<T> {
  const [state, setState] = useState<Loaded<T> & { about: string }>({ about, data: null, problem: null,
    isWaiting: ask !== null });
  const era = epoch.value;
  useEffect(() => {
    if (!ask) return setState({ about, data: null, problem: null, isWaiting: false });
    let isWanted = true;
    setState((old) => ({ ...old, about, data: old.about === about ? old.data : null, isWaiting: true }));
    ask().then(
      (data) => isWanted && setState({ about, data, problem: null, isWaiting: false }),
      (error: unknown) => isWanted && setState((old) => ({ ...old, problem: asProblem(error), isWaiting: false })),
    );
    return () => {
      isWanted = false;
    };
  }, [about, key, era]);
  return state.about === about ? state : { data: null, problem: null, isWaiting: true };
}

export function asProblem(error: unknown): SourceError {
  return error instanceof SourceError ? error : new SourceError(error instanceof Error ? error.message : String(error));
}

/** Words of the server as a sentence of a page: a capital letter at its beginning, unless that is a name, and a stop at its end. */
export function sentence(text: string): string {
  const said = text.trim();
  const begin = /^[a-z]+(?![\w-]|\.\w)/.test(said) ? said[0]!.toUpperCase() + said.slice(1) : said;
  return begin && begin + (/[.!?…:]$/.test(said) ? "" : ".");
}

/** A note of the server as a sentence; what stands between backticks is code. */
export function Note(props: { text: string }) {
  return <>{sentence(props.text).split("`").map((part, i) => (i % 2 ? <code key={i}>{part}</code> : <Plain key={i} text={part} />))}</>;
}

/** What would help: a command to copy, or a sentence. */
export function Fix(props: { text: string }) {
  return props.text.startsWith("counterpoint ") && !/\b(makes|lists|prints|says|ranks|shows|writes)\b/.test(props.text)
    ? <Command text={props.text} /> : <>{sentence(props.text)}</>;
}

export function Waiting(props: { what: string }) {
  return <p class="waiting" role="status">{props.what}…</p>;
}

/** A command to type, with a button that copies it. */
export function Command(props: { text: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    if (!await copied(props.text)) return say(`Copy it from here: ${props.text}`);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return (
    <span class="command">
      <code>{props.text}</code>
      <button type="button" onClick={copy} aria-label={`Copy: ${props.text}`}>{done ? "copied" : "copy"}</button>
    </span>
  );
}
