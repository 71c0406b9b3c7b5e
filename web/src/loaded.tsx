// Waiting, failing, having nothing: said in words, with the command that helps. Always true: what was shown stays on the screen
// while something newer is asked for.
import { useEffect, useState } from "preact/hooks";
import { epoch } from "./state";
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

export function Waiting(props: { what: string }) {
  return <p class="waiting" role="status">{props.what}…</p>;
}

/** A command to type, with a button that copies it. */
export function Command(props: { text: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard?.writeText(props.text).catch(() => undefined);
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
