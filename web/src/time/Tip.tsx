// What is under the pointer, beside it. Always true: everything it says is text.
import { compact, money, signed, span } from "../numbers";
import { glyphOf } from "../palette";
import { agentName, columns, eventName, hover, method, rowOf, trace } from "../state";
import { RULER } from "./draw";
import * as model from "./model";
import type { Stage } from "./stage";
import { flagWords } from "./Twin";
import { tickLabel } from "./view";

function lines(row: number): string[] {
  const at = columns.value!;
  const about = trace.value!.about;
  const credit = model.creditByRow.value?.[row] ?? NaN;
  const tool = about.tools[at.tool[row]! - 1];
  const spent = [
    at.tokens[row]! > 0 ? `${compact(at.tokens[row]!)} tokens` : "", Number.isNaN(at.cost[row]!) ? "" : money(at.cost[row]!),
    Number.isNaN(credit) ? "" : `${method.value ?? "credit"} ${signed(credit, 3)}`,
  ].filter(Boolean).join(" · ");
  const lasted = Number.isNaN(at.dur[row]!) ? "" : ` · ${span(at.dur[row]!)}`;
  const marks = flagWords(at.flags[row]!).join(", ");
  return [tool ? `tool ${tool}` : "", `${tickLabel(at.t[row]!, 0.01)}${lasted}`, spent, marks].filter(Boolean);
}

export function Tip({ stage }: { stage: Stage }) {
  const { event } = hover.value;
  const row = rowOf(event);
  const at = columns.value;
  if (row < 0 || !at || stage.pointer.x < 0) return null;
  const type = trace.value?.about.types[at.type[row]!] ?? "unknown";
  const isRight = stage.pointer.x > stage.width * 0.6;
  const isLow = stage.pointer.y > stage.height * 0.6;
  const style = {
    ...(isRight ? { right: `${stage.width - stage.pointer.x + 14}px` } : { left: `${stage.pointer.x + 14}px` }),
    ...(isLow ? { bottom: `${stage.height - stage.pointer.y + 10}px` } : { top: `${stage.pointer.y + RULER + 12}px` }),
  };
  return (
    <div class="time-tip" style={style} aria-hidden="true">
      <b>{eventName(event)}</b> {glyphOf(type)} {type.replaceAll("_", " ")}
      <div>{agentName(at.agent[row]!)}</div>
      {lines(row).map((line) => <div key={line} class="quiet">{line}</div>)}
    </div>
  );
}
