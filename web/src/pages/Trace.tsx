// The trace page. Always true: the answer comes first, the events second.
import Time from "../time/Time";

export default function TracePage() {
  return <Time />;
}
