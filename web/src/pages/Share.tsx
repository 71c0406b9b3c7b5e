// Share: a link, or the trace as a file. Always true: secrets are masked unless the reader says otherwise; the command that makes the
// same file is said.
import { useState } from "preact/hooks";
import { Command } from "../loaded";
import { bytes, span } from "../numbers";
import { Popover } from "../shell/Popover";
import { copyLink } from "../shell/share";
import { Failure } from "../shell/states";
import { say } from "../shell/toast";
import type { Choice } from "../source";
import { agentName, marked, selectedAgent, source, trace, zoom } from "../state";
import { quoted } from "./openfile";

type Range = "all" | "screen" | "marked";

export function Share() {
  const isServer = source.value!.kind === "server";
  const { about } = trace.value!;
  return (
    <Popover title="Share">
      <div class="share-box share-form" role="group" aria-label="Share">
        <button type="button" onClick={() => void copyLink()}>Copy link (Y)</button>
        {isServer ? <Download key={about.id} />
          : <p class="quiet">This page is a file: send it as it is. {about.is_masked ? "Secrets in it are masked." : "Nothing in it is masked."}</p>}
      </div>
    </Popover>
  );
}

function Download() {
  const { id, about } = trace.value!;
  const [isMasked, setMasked] = useState(true);
  const [hasTexts, setTexts] = useState(true);
  const [wanted, setRange] = useState<Range>("all");
  const [isAgent, setAgent] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const ranges: [Range, string, [number, number] | null][] = [
    ["all", "the whole trace", null], ["screen", "what the timeline shows", zoom.value], ["marked", "the marked range", marked.value],
  ];
  const able = ranges.filter(([name, , range]) => name === "all" || range !== null);
  const range = able.find(([name]) => name === wanted)?.[2] ?? null;
  const agent = selectedAgent.value;
  const choice: Choice = {
    mask: isMasked, texts: hasTexts, range: range ? [range[0] - about.start, range[1] - about.start] : null,
    agent: isAgent && agent >= 0 ? about.agents[agent]?.name ?? null : null,
  };
  const load = async (): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      const blob = await source.value!.download(id, choice);
      save(blob, `${id.replace(/[^\w.-]+/g, "-").slice(0, 80) || "trace"}.html`);
      say(`Downloaded: ${bytes(blob.size)}`);
    } catch (failed) { setError(failed); } finally { setBusy(false); }
  };
  return (
    <form onSubmit={(event) => { event.preventDefault(); void load(); }}>
      <p>One file that opens in any browser, without Counterpoint.</p>
      <label><input type="checkbox" checked={isMasked} onChange={() => setMasked(!isMasked)} /> Mask keys, e-mail addresses and home folders</label>
      <label><input type="checkbox" checked={hasTexts} onChange={() => setTexts(!hasTexts)} /> With texts and fields of events</label>
      <label>Range <select value={range ? wanted : "all"} onChange={(event) => setRange(event.currentTarget.value as Range)}>
        {able.map(([name, text, of]) => <option key={name} value={name}>{text}{of ? ` (${span(of[0] - about.start)} – ${span(of[1] - about.start)})` : ""}</option>)}
      </select></label>
      {able.length === 1 && <p class="quiet">Zoom the timeline, or mark a range in it (M), to share a part.</p>}
      {agent >= 0 && <label><input type="checkbox" checked={isAgent} onChange={() => setAgent(!isAgent)} /> Only <bdi>{agentName(agent)}</bdi> and its sub-agents</label>}
      <button type="submit" class="main" disabled={isBusy}>{isBusy ? "Preparing…" : "Download"}</button>
      {error !== null && <Failure error={error} />}
      <p class="quiet">The same by command:</p>
      <Command text={command(id, choice)} />
    </form>
  );
}

/** The command that writes the same file. */
export function command(id: string, choice: Choice): string {
  const seconds = (value: number): string => String(Number(value.toFixed(3)));
  return ["counterpoint export", quoted(id), "--to html -o trace.html", choice.mask ? "" : "--mask off", choice.texts ? "" : "--summary",
    choice.range ? `--window ${seconds(choice.range[0])}-${seconds(choice.range[1])}` : "",
    choice.agent === null ? "" : `--agent ${quoted(choice.agent)}`].filter(Boolean).join(" ");
}

function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
