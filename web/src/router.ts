// Addresses. Always true: everything that is needed to see the same thing again is in the address, in the path on a server
// (`/t/ID?e=&v=&z=&f=&m=`) and behind # in a one-file page; both have the same form after the first character.

import { PANELS } from "./shapes.gen";

/** The views that the page itself has, then the panels, in the order of their keys. */
const OWN = ["map", "time", "text", "credit"] as const;
export type View = (typeof OWN)[number] | (typeof PANELS)[number]["id"];
export const VIEWS: readonly View[] = [...OWN, ...PANELS.map((panel) => panel.id)];

/** What a trace page shows. `event` is an event's id, or `~N` for its number where ids are not at hand. */
export interface TraceRoute {
  page: "trace";
  id: string;
  view: View;
  event: string | null;
  zoom: [number, number] | null;
  filter: string;
  methods: string[];
}

export type Route =
  | { page: "traces"; query: string; sort?: string; ids?: boolean }
  | TraceRoute
  | { page: "diff"; a: string; b: string }
  | { page: "runs"; id: string | null; sort?: string; query?: string }
  | { page: "compare"; spec: string }
  | { page: "bench"; a: string; b: string }
  | { page: "live" }
  | { page: "issues"; id: string | null; query: string; state: string; kind: string }
  | { page: "unknown"; path: string };

/** An id inside a path. Two dots part the ids of a diff, so they are written out. */
function coded(id: string): string {
  return encodeURIComponent(id).replaceAll("..", "%2E%2E");
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function zoomOf(text: string | null): [number, number] | null {
  const found = /^(-?[\d.]+)-(-?[\d.]+)$/.exec(text ?? "");
  if (!found) return null;
  const [from, to] = [Number(found[1]), Number(found[2])];
  return Number.isFinite(from) && Number.isFinite(to) && to > from ? [from, to] : null;
}

/** Seconds with as many digits as a link needs. */
function short(seconds: number): string {
  return String(Number(seconds.toFixed(3)));
}

function traceRoute(id: string, query: URLSearchParams): TraceRoute {
  const view = query.get("v") as View | null;
  return {
    page: "trace", id, view: view && VIEWS.includes(view) ? view : "time", event: query.get("e"), zoom: zoomOf(query.get("z")),
    filter: query.get("f") ?? "", methods: (query.get("m") ?? "").split(",").filter(Boolean),
  };
}

/** Whole words do as well as the letters that links have. */
const LONG: Record<string, string> = { trace: "t", diff: "d", runs: "r", compare: "c" };

/** The route of an address such as `/t/ID?v=credit`; a `#` before it is allowed. */
export function parse(address: string): Route {
  const [path = "", search = ""] = splitOnce(address.replace(/^#/, ""), "?");
  const query = new URLSearchParams(search);
  const parts = path.split("/").filter(Boolean);
  const [head, tail] = [LONG[parts[0] ?? ""] ?? parts[0], parts.slice(1).join("/")];
  const sort = query.get("sort") ? { sort: query.get("sort")! } : {};
  switch (head) {
    case undefined: case "traces": return { page: "traces", query: query.get("q") ?? "", ...sort, ...(query.get("ids") === "1" ? { ids: true } : {}) };
    case "t": return tail ? traceRoute(decoded(tail), query) : { page: "traces", query: "" };
    case "d": {
      const [a = "", b = ""] = splitOnce(tail, "..");
      return { page: "diff", a: decoded(a), b: decoded(b) };
    }
    case "r": return { page: "runs", id: tail ? decoded(tail) : null, ...sort, ...(query.get("q") ? { query: query.get("q")! } : {}) };
    case "c": return { page: "compare", spec: query.get("s") ?? "" };
    case "bench": {
      const [a = "", b = ""] = splitOnce(tail, "..");
      return { page: "bench", a: decoded(a), b: decoded(b) };
    }
    case "live": return { page: "live" };
    case "issues": return {
      page: "issues", id: tail ? decoded(tail) : null, query: query.get("q") ?? "", state: query.get("state") ?? "", kind: query.get("kind") ?? "",
    };
    default: return { page: "unknown", path };
  }
}

function splitOnce(text: string, at: string): [string, string] {
  const place = text.indexOf(at);
  return place < 0 ? [text, ""] : [text.slice(0, place), text.slice(place + at.length)];
}

/** Percent-encoding of what would end or break a value; the rest stays readable. */
function value(text: string): string {
  return encodeURIComponent(text).replaceAll("%2C", ",").replaceAll("%3A", ":").replaceAll("%20", "+");
}

/** What follows the path: the words that say something. An event's id may be empty, and is said. */
function asked(words: Record<string, string | null | undefined>): string {
  const said = Object.entries(words).flatMap(([name, text]) => (text || (name === "e" && text === "") ? [`${name}=${value(text)}`] : []));
  return said.length ? `?${said.join("&")}` : "";
}

/** The address of a route, from `/` on. */
export function format(route: Route): string {
  switch (route.page) {
    case "traces": return `/${asked({ q: route.query, sort: route.sort, ids: route.ids ? "1" : "" })}`;
    case "trace": {
      const { event, view, zoom, filter, methods } = route;
      const range = zoom ? `${short(zoom[0])}-${short(zoom[1])}` : "";
      return `/t/${coded(route.id)}${asked({ e: event, v: view === "time" ? "" : view, z: range, f: filter, m: methods.join(",") })}`;
    }
    case "diff": return route.a || route.b ? `/d/${coded(route.a)}..${coded(route.b)}` : "/d";
    case "runs": return (route.id ? `/r/${coded(route.id)}` : "/r") + asked({ q: route.query, sort: route.sort });
    case "compare": return route.spec ? `/c?s=${value(route.spec)}` : "/c";
    case "bench": return route.a ? `/bench/${coded(route.a)}${route.b ? `..${coded(route.b)}` : ""}` : "/bench";
    case "live": return "/live";
    case "issues": return (route.id ? `/issues/${coded(route.id)}` : "/issues") + asked({ q: route.query, state: route.state, kind: route.kind });
    case "unknown": return route.path || "/";
  }
}

/** A trace page with nothing chosen. */
export function traceLink(id: string, more: Partial<Omit<TraceRoute, "page" | "id">> = {}): Route {
  return { page: "trace", id, view: "time", event: null, zoom: null, filter: "", methods: [], ...more };
}

/** The board of issues with nothing chosen, or one issue. */
export function issuesLink(id: string | null = null, query = ""): Route {
  return { page: "issues", id, query, state: "", kind: "" };
}

/** How addresses are kept: in the path, or behind # where the page is a file. */
export interface Bar {
  read(): string;
  /** What goes into an `href`. */
  href(address: string): string;
  write(address: string, isNew: boolean): void;
  /** Calls when the user goes back or forward; gives a function that ends it. */
  listen(onMove: () => void): () => void;
}

/** The bar of this window. `home` is where a file without an address begins. */
export function browserBar(isFile: boolean, home = "/"): Bar {
  if (location.protocol === "about:") return innerBar(home);
  const href = (address: string): string => (isFile ? `#${address}` : address);
  return {
    read: () => (isFile ? location.hash || `#${home}` : location.pathname + location.search),
    href,
    write: (address, isNew) => history[isNew ? "pushState" : "replaceState"](null, "", href(address)),
    listen: (onMove) => {
      addEventListener("popstate", onMove);
      return () => removeEventListener("popstate", onMove);
    },
  };
}

/** A page in a notebook's frame has no address that could be written: it keeps its own. */
export function innerBar(home: string): Bar {
  let here = home;
  return { read: () => here, href: (address) => `#${address}`, write: (address) => { here = address; },
    listen: () => () => undefined };
}
