// What a page says when it cannot show what it should: empty, broken, gone, too large. Always true: it says what, and what would
// help.
import { Component, type ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Fix, sentence } from "../loaded";
import { connection, reload } from "../state";
import { Link } from "./Link";
import { SourceError } from "../source";

const WAIT_S = 3;

/** Something failed: what, and what would work. */
export function Failure({ error, onAgain }: { error: unknown; onAgain?: () => void }) {
  const known = error instanceof SourceError ? error : null;
  return (
    <section class="state" role="alert">
      <h2>{known ? sentence(known.what) : "The page cannot show this."}</h2>
      {!known && <pre class="raw">{String(error)}</pre>}
      {known?.fix && <p><Fix text={known.fix} /></p>}
      {known?.status === 404 && <p class="chips wide-chips"><Link to={{ page: "traces", query: "" }}>All traces</Link> <Link to={{ page: "runs", id: null }}>All runs</Link></p>}
      {onAgain && <button type="button" onClick={onAgain}>Try again</button>}
    </section>
  );
}

/** Nothing is there, and that is no failure. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return <section class="state"><h2>{title}</h2>{children}</section>;
}

/** The mark of a trace or run in which an operator intervened: it is not what the team does by itself. */
export function Steered({ text = "steered" }: { text?: string }) {
  return <span class="badge warn" title="An operator intervened while it ran.">☉ {text}</span>;
}

/** Catches what a view throws while it is drawn, so that the rest of the page stays. */
export class Boundary extends Component<{ children: ComponentChildren; of: string }, { error: unknown }> {
  override state = { error: null as unknown };
  static override getDerivedStateFromError(error: unknown): { error: unknown } { return { error }; }
  override componentDidUpdate(before: { of: string }): void {
    if (before.of !== this.props.of && this.state.error !== null) this.setState({ error: null });
  }
  render() {
    if (this.state.error === null) return this.props.children;
    return <Failure error={this.state.error} onAgain={() => this.setState({ error: null })} />;
  }
}

/** "Reconnecting… 3 s": asks for the page itself until it is there, then everything that failed is asked again. */
export function Reconnecting() {
  const [left, setLeft] = useState(WAIT_S);
  const isLost = connection.value === "lost";
  useEffect(() => {
    if (!isLost) return;
    let seconds = WAIT_S;
    setLeft(seconds);
    const timer = setInterval(() => {
      seconds = seconds > 0 ? seconds - 1 : WAIT_S;
      setLeft(seconds);
      if (seconds === 0) void fetch("/", { method: "HEAD", cache: "no-store" }).then(() => { connection.value = "ok"; reload(); },
        () => undefined);
    }, 1000);
    return () => clearInterval(timer);
  }, [isLost]);
  if (!isLost) return null;
  return <div class="banner" role="status">Reconnecting… <span
    aria-hidden="true">{left} s</span> The page keeps what it received last.</div>;
}
