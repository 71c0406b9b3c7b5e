// Begins: finds out where the data is, then draws. Always true: a failure to begin is said on the page, never a blank tab.
import { effect } from "@preact/signals";
import { render } from "preact";
import { App } from "./app";
import { FileSource, readBlock } from "./file";
import { HttpSource } from "./http";
import { paint } from "./palette";
import { browserBar, format, traceLink } from "./router";
import { connection, shade, start, theme } from "./state";
import { SourceError, type Source } from "./source";
import { Failure } from "./shell/states";
import "./theme.css";

/** The write token: in the boot block, or behind # in the address that `view` opens. It is taken out of the address. */
function token(): string | null {
  const boot = document.getElementById("counterpoint-boot")?.textContent;
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) history.replaceState(null, "", location.pathname + location.search);
  return given ?? (boot ? (JSON.parse(boot) as { token?: string }).token ?? null : null);
}

async function findSource(): Promise<Source> {
  const block = document.getElementById("counterpoint-data");
  if (block) return new FileSource(await readBlock(block));
  if (location.protocol === "file:") throw new SourceError("This file contains no trace.", "counterpoint export TRACE --to html -o FILE");
  return new HttpSource(token(), (isThere) => { connection.value = isThere ? "ok" : "lost"; });
}

/** A file with one trace begins with it, not with a list of one. */
function home(found: Source): string {
  const ids = found instanceof FileSource ? Object.keys(found.block.traces) : [];
  return ids.length === 1 ? format(traceLink(ids[0]!)) : "/";
}

async function begin(): Promise<void> {
  const place = document.getElementById("app")!;
  effect(() => {
    document.documentElement.dataset["theme"] = shade.value;
    document.documentElement.dataset["chosen"] = theme.value;
    paint(document.documentElement, shade.value);
  });
  try {
    const found = await findSource();
    start(found, browserBar(found.kind === "file", home(found)));
    render(<App />, place);
  } catch (error) {
    render(<main><Failure error={error} /></main>, place);
  }
}

void begin();
