// Text of a trace, set for reading: Markdown, JSON as a tree, long texts folded. Always true: every letter of the trace becomes a
// text node (`Plain`), so that whatever it holds is read and never run; an address is shown and cannot be followed by a click.
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { asJson, type Block, blocks, type Inline, isMarkdown } from "./markdown";
import { count } from "./numbers";
import { Plain } from "./plaintext";

interface RichProps {
  text: string;
  words?: readonly string[] | undefined;
  /** Results of tools: no Markdown, since programs do not write any. */
  isResult?: boolean | undefined;
}

const LINES = 14;
const CHARACTERS = 1_600;

/** The text; where it is long, its beginning and a button. */
export function Folded(props: RichProps & { isOpen: boolean; onOpen: (isOpen: boolean) => void }) {
  const { text, isOpen } = props;
  const lines = useMemo(() => text.split("\n").length, [text]);
  const isLong = lines > LINES || text.length > CHARACTERS;
  if (!isLong) return <Rich {...props} />;
  const rest = lines > LINES ? count(lines, "line") : count(text.length, "character");
  return (
    <>
      <div class={isOpen ? "fold" : "fold is-folded"}><Rich {...props} text={isOpen ? text : beginning(text)} /></div>
      <button type="button" class="unfold" aria-expanded={isOpen}
        onClick={(event) => { event.stopPropagation(); props.onOpen(!isOpen); }}>{isOpen ? "Show less" : `Show all ${rest}`}</button>
    </>
  );
}

/** As much as is shown of a long text. JSON is left whole, because a part of it is none: its tree is folded instead. */
function beginning(text: string): string {
  return asJson(text) === undefined ? text.split("\n").slice(0, LINES).join("\n").slice(0, CHARACTERS) : text;
}

export function Rich(props: RichProps) {
  const { text, words, isResult } = props;
  const json = useMemo(() => asJson(text), [text]);
  const found = useMemo(() => (json === undefined && !isResult && isMarkdown(text) ? blocks(text) : null), [text, json, isResult]);
  if (json !== undefined) return <div class="json"><Json value={json} words={words} depth={0} /></div>;
  if (found) return <div class="md">{found.map((block, i) => <Set key={i} block={block} words={words} />)}</div>;
  return isResult ? <div class="result"><Plain text={text} words={words ?? []} /></div> : <Plain text={text} words={words ?? []} />;
}

type Words = readonly string[] | undefined;

function Set(props: { block: Block; words: Words }): JSX.Element {
  const { block, words } = props;
  switch (block.kind) {
    case "paragraph": return <p><Line all={block.inside} words={words} /></p>;
    // headings of a trace are none of the page
    case "heading": return <p class={`md-heading level-${block.level}`}><Line all={block.inside} words={words} /></p>;
    case "code": return <pre class="md-code" tabIndex={0} aria-label={`Code${block.language ? ` in ${block.language}` : ""}`}><Plain text={block.text} words={words ?? []} /></pre>;
    case "quote": return <blockquote>{block.blocks.map((one, i) => <Set key={i} block={one} words={words} />)}</blockquote>;
    case "rule": return <hr />;
    case "table": return <Table head={block.head} rows={block.rows} words={words} />;
    case "list": {
      const items = block.items.map((item, i) => <li key={i}>{item.map((one, k) => <Set key={k} block={one} words={words} />)}</li>);
      return block.isOrdered ? <ol start={block.first}>{items}</ol> : <ul>{items}</ul>;
    }
  }
}

function Table(props: { head: Inline[][]; rows: Inline[][][]; words: Words }) {
  return (
    <div class="md-table"><table>
      <thead><tr>{props.head.map((cell, i) => <th key={i} scope="col"><Line all={cell} words={props.words} /></th>)}</tr></thead>
      <tbody>{props.rows.map((row, i) => <tr key={i}>{row.map((cell, k) => <td key={k}><Line all={cell} words={props.words} /></td>)}</tr>)}</tbody>
    </table></div>
  );
}

function Line(props: { all: Inline[]; words: Words }): JSX.Element {
  return <>{props.all.map((one, i) => <One key={i} one={one} words={props.words} />)}</>;
}

function One(props: { one: Inline; words: Words }): JSX.Element {
  const { one, words } = props;
  switch (one.kind) {
    case "text": return <Plain text={one.text} words={words ?? []} />;
    case "code": return <code><Plain text={one.text} words={words ?? []} /></code>;
    case "strong": return <strong><Line all={one.inside} words={words} /></strong>;
    case "em": return <em><Line all={one.inside} words={words} /></em>;
    case "del": return <s><Line all={one.inside} words={words} /></s>;
    case "link": return <><Line all={one.inside} words={words} /> <span class="md-address">(<Plain text={one.address} words={words ?? []} />)</span></>;
  }
}

const OPEN_DEPTH = 2;
const MOST_INSIDE = 200;

/** A JSON value as a tree; what is deep or has many parts is opened by a click. */
function Json(props: { value: unknown; words: Words; depth: number; name?: string }): JSX.Element {
  const { value, words, depth, name } = props;
  const lead = name === undefined ? null : <><span class="json-name"><Plain text={name} words={words ?? []} /></span>: </>;
  if (value === null || typeof value !== "object") {
    const shown = typeof value === "string" ? value : JSON.stringify(value);
    return <div>{lead}<span class={typeof value === "string" ? "json-string" : "json-other"}><Plain text={shown} words={words ?? []} /></span></div>;
  }
  const parts = Object.entries(value as Record<string, unknown>);
  const size = Array.isArray(value) ? `[${parts.length}]` : `{${parts.length}}`;
  if (!parts.length) return <div>{lead}{Array.isArray(value) ? "[ ]" : "{ }"}</div>;
  return <Parts lead={lead} size={size} parts={parts} words={words} depth={depth} isOpen={depth < OPEN_DEPTH && parts.length <= 12} />;
}

function Parts(props: { lead: JSX.Element | null; size: string; parts: [string, unknown][]; words: Words; depth: number; isOpen: boolean }) {
  const [isOpen, setOpen] = useState(props.isOpen);
  const inside = props.parts.slice(0, MOST_INSIDE);
  return (
    <details open={isOpen} onToggle={(event) => { event.stopPropagation(); setOpen(event.currentTarget.open); }}>
      <summary onClick={(event) => event.stopPropagation()}>{props.lead}<span class="quiet">{props.size}</span></summary>
      {isOpen && <div class="json-inside">
        {inside.map(([name, value]) => <Json key={name} name={name} value={value} words={props.words} depth={props.depth + 1} />)}
        {props.parts.length > inside.length && <div class="quiet">and {count(props.parts.length - inside.length, "more part")}, in the raw payload</div>}
      </div>}
    </details>
  );
}
