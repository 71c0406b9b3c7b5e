// What a browser's tab and its history call the page. Always true: two tabs with different things have different titles.
import { visible } from "./plaintext";
import type { Route } from "./router";

/** The title at an address; `name` is what the trace there is called, once it is known. */
export function titleAt(at: Route, name: string | null): string {
  return `${visible(thing(at, name)).slice(0, 200)} · Counterpoint`;
}

function thing(at: Route, name: string | null): string {
  switch (at.page) {
    case "traces": return at.query ? `Traces: ${at.query}` : "Traces";
    case "trace": return name ?? at.id;
    case "diff": return at.a && at.b ? `Diff of ${at.a} and ${at.b}` : "Diff";
    case "runs": return at.id ?? "Runs";
    case "compare": return at.spec ? `Compare ${at.spec}` : "Compare";
    case "bench": return at.a ? `Bench ${[at.a, at.b].filter(Boolean).join(" and ")}` : "Bench";
    case "live": return "Live";
    case "issues": return at.id ? `Issue ${at.id}` : "Issues";
    default: return "No such page";
  }
}
