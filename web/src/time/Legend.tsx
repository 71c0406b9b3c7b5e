// What colours, glyphs and marks mean, in words.
import { FAMILIES } from "../shapes.gen";
import { familyColour, familyOf, FAMILY_NAMES, glyphOf, TAINT_GLYPH, UNKNOWN_FAMILY, UNKNOWN_GLYPH } from "../palette";
import { colourBy, shade, trace } from "../state";
import { looksOf } from "./looks";
import * as model from "./model";

function Family({ family }: { family: number }) {
  const name = FAMILY_NAMES[family]!;
  const known: readonly string[] = FAMILIES[name as keyof typeof FAMILIES] ?? [];
  const types = known.filter((type) => trace.value?.about.types.includes(type) ?? true);
  const say = (type: string) => `${glyphOf(type)} ${type.replaceAll("_", " ")}`;
  if (family !== UNKNOWN_FAMILY && types.length === 0) return null;
  return (
    <li>
      <span class="time-swatch" style={{ background: familyColour(family, shade.value) }} aria-hidden="true" />
      <b>{name}</b> {family === UNKNOWN_FAMILY ? UNKNOWN_GLYPH : types.map(say).join(" ")}
    </li>
  );
}

function Steps() {
  const scale = model.scale.value;
  if (!scale) return null;
  const { colours } = looksOf(scale.by, shade.value);
  return (
    <>
      {scale.names.map((name, cls) => (
        <li key={name}><span class="time-swatch" style={{ background: colours[cls]! }} aria-hidden="true" />{name}</li>
      ))}
    </>
  );
}

export function Legend() {
  const by = colourBy.value;
  const isFamily = by === "family" || model.scale.value === null;
  const hasUnknown = trace.value?.about.types.some((type) => familyOf(type) === UNKNOWN_FAMILY) ?? false;
  const families = FAMILY_NAMES.filter((_, family) => family !== UNKNOWN_FAMILY || hasUnknown);
  return (
    <ul class="time-legend" aria-label={`Legend: colour by ${by}`}>
      {isFamily ? families.map((name, family) => <Family key={name} family={family} />) : <Steps />}
      <li><span class="time-swatch time-path" aria-hidden="true" />critical path</li>
      <li><span class="time-swatch time-taint" aria-hidden="true">{TAINT_GLYPH}</span>tainted</li>
      <li><span class="time-swatch time-wait" aria-hidden="true" />waits</li>
      <li><span aria-hidden="true">✕</span> failed</li>
      {model.hasOpen.value && <li><span class="time-swatch time-open" aria-hidden="true" />still open</li>}
    </ul>
  );
}
