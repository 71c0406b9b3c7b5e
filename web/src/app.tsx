// The shell: the rail on the left, the page beside it. Always true: the rail is the only other thing on the screen.
import type { FunctionComponent } from "preact";
import { useEffect } from "preact/hooks";
import { listenToKeys, onCommand } from "./keys";
import Bench from "./pages/Bench";
import Compare from "./pages/Compare";
import Diff from "./pages/Diff";
import Issues from "./pages/Issues";
import Live from "./pages/Live";
import Runs from "./pages/Runs";
import TracePage from "./pages/Trace";
import TracesPage from "./pages/Traces";
import { issuesLink, parse, traceLink, type Route } from "./router";
import { PAGES } from "./shapes.gen";
import { Help, Menu, openDialog } from "./shell/dialogs";
import { Icon } from "./shell/icons";
import { Link } from "./shell/Link";
import { Boundary, Empty, Reconnecting } from "./shell/states";
import { copyLink } from "./shell/share";
import { Toast } from "./shell/toast";
import { Tour } from "./shell/Tour";
import { titleAt } from "./title";
import { go, nextTheme, route, source, theme, trace } from "./state";

interface Place { page: Route["page"]; text: string; to: () => Route; isFileToo: boolean }

/** The rail, top to bottom. */
function places(): Place[] {
  const open = trace.value;
  const all: (Place | null)[] = [
    { page: "traces", text: "Traces", to: () => ({ page: "traces", query: "" }), isFileToo: true },
    open ? { page: "trace", text: "Trace", to: () => traceLink(open.id), isFileToo: true } : null,
    { page: "diff", text: "Diff", to: () => ({ page: "diff", a: open?.about.parent ?? "", b: open?.about.parent ? open.id : "" }),
      isFileToo: false },
    { page: "issues", text: "Issues", to: () => issuesLink(), isFileToo: false },
    ...PAGES.map(({ id, name }) => ({ page: id, text: name, to: () => parse(`/${id}`), isFileToo: false })),
    { page: "live", text: "Live", to: () => ({ page: "live" }), isFileToo: false },
  ];
  return all.filter((one): one is Place => one !== null && (one.isFileToo || source.value?.kind === "server"));
}

const COMPONENTS: Record<Route["page"], FunctionComponent> = {
  traces: TracesPage, trace: TracePage, diff: Diff, runs: Runs, compare: Compare, bench: Bench, issues: Issues, live: Live, unknown: Unknown,
};

function Unknown() {
  const at = route.value;
  return (
    <Empty title={`There is no page at ${at.page === "unknown" ? at.path : "this address"}.`}>
      <p>These pages exist:</p>
      <ul class="chips wide-chips">{places().map((place) => <li key={place.page}><Link to={place.to()}>{place.text}</Link></li>)}</ul>
    </Empty>
  );
}

function Rail() {
  const here = route.value.page;
  const themes = { auto: "as the system", light: "light", dark: "dark" };
  return (
    <nav class="rail" aria-label="Pages">
      <a class="skip" href="#content"
        onClick={(event) => { event.preventDefault(); document.getElementById("content")?.focus(); }}>Skip to the content</a>
      <ul>
        {places().map((place) => (
          <li key={place.page} class={here === place.page ? "here" : ""} aria-current={here === place.page ? "page" : undefined}>
            <Link to={place.to()}><Icon name={place.page} /><span>{place.text}</span></Link>
          </li>
        ))}
      </ul>
      <div class="rail-end">
        <button type="button" onClick={nextTheme} title={`Theme: ${themes[theme.value]} (T)`}><Icon
          name="theme" /><span>Theme</span></button>
        <button type="button" onClick={() => openDialog("menu")} title="All commands (Ctrl-K)"><Icon
          name="menu" /><span>Menu</span></button>
        <button type="button" onClick={() => openDialog("help")} title="Keys and help (?)"><Icon
          name="help" /><span>Help</span></button>
      </div>
    </nav>
  );
}

function useCommands(): void {
  useEffect(() => {
    const ends = [
      listenToKeys(window),
      onCommand("help", () => openDialog("help")),
      onCommand("commands", () => openDialog("menu")),
      onCommand("theme", nextTheme),
      onCommand("copy-link", () => void copyLink()),
      onCommand("go-traces", () => go({ page: "traces", query: "" })),
      onCommand("go-diff", () => go({ page: "diff", a: "", b: "" })),
      ...PAGES.map(({ id }) => onCommand(`go-${id}`, () => go(parse(`/${id}`)))),
      onCommand("go-issues", () => go(issuesLink())),
      onCommand("go-live", () => go({ page: "live" })),
    ];
    return () => ends.forEach((end) => end());
  }, []);
}

function useTitle(): void {
  const at = route.value;
  const open = trace.value;
  const name = at.page === "trace" && open?.id === at.id ? open.about.title ?? null : null;
  useEffect(() => { document.title = titleAt(at, name); }, [at, name]);
}

export function App() {
  useCommands();
  useTitle();
  const Page = COMPONENTS[route.value.page];
  return (
    <div class="app">
      <Rail />
      <main id="content" tabIndex={-1}>
        <Reconnecting />
        <Boundary of={route.value.page}><Page /></Boundary>
      </main>
      <Help />
      <Menu />
      <Tour />
      <Toast />
    </div>
  );
}
