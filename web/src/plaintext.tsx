// Text of a trace on the screen. Always true: it is hostile, so it becomes text nodes and nothing else; characters that would
// turn the reading direction or hide are written out; masked labels and found words are marked.

export interface Piece {
  kind: "text" | "found" | "masked" | "unseen";
  text: string;
}

/** Joiners that are ordinary spelling: inside an emoji of several parts, and between letters of scripts that join. */
const JOINING = ["Arabic", "Devanagari", "Bengali", "Gurmukhi", "Gujarati", "Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala"]
  .map((script) => `\\p{Script=${script}}`).join("");
const SPELLING = "(?<=[\\p{Extended_Pictographic}\\p{Emoji_Modifier}\\uFE0F])\\u200D(?=\\p{Extended_Pictographic})"
  + `|(?<=[${JOINING}])[\\u200C\\u200D](?=[${JOINING}])`;
/** Turns of direction, isolates, marks, zero widths, the byte-order mark, and control characters but tab and line break. */
const HIDDEN = "[\\u0000-\\u0008\\u000B-\\u001F\\u007F-\\u009F\\u061C\\u200B-\\u200F\\u2028-\\u202E\\u2060-\\u2069\\uFEFF]";
const MASKED = "\\[masked:[^\\]\\n]{1,80}\\]";

export function pieces(text: string, words: readonly string[] = []): Piece[] {
  const wanted = words.filter(Boolean).map(escaped);
  const found = wanted.length ? `|(${wanted.join("|")})` : "";
  const all = new RegExp(`((?!${SPELLING})${HIDDEN})|(${MASKED})${found}`, "giu");
  const out: Piece[] = [];
  let from = 0;
  for (const match of text.matchAll(all)) {
    if (match.index > from) out.push({ kind: "text", text: text.slice(from, match.index) });
    if (match[1]) {
      // A line that ends in CR LF is a plain line.
      const isLineEnd = match[1] === "\r" && text[match.index + 1] === "\n";
      if (!isLineEnd) out.push({ kind: "unseen", text: codeOf(match[1]) });
    } else out.push({ kind: match[2] ? "masked" : "found", text: match[0] });
    from = match.index + match[0].length;
  }
  if (from < text.length) out.push({ kind: "text", text: text.slice(from) });
  return out;
}

/** A name where there is room for text only: what hides or turns is written out there too. */
export const visible = (text: string): string => pieces(text).map((piece) => piece.text).join("");

const escaped = (word: string) => word.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&").replace(/\\-/g, "\\x2d");
const codeOf = (character: string) => `U+${character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}`;

export function Plain(props: { text: string; words?: readonly string[] }) {
  return (
    <bdi class="said">
      {pieces(props.text, props.words).map((piece, i) =>
        piece.kind === "text" ? piece.text
          : piece.kind === "found" ? <mark key={i}>{piece.text}</mark>
            : <span key={i} class={piece.kind} title={piece.kind === "unseen" ? "an invisible character" : "masked"}>
            {piece.text}</span>)}
    </bdi>
  );
}
