// An event's id in a button or a line. Always true: a long id is cut in the middle of the screen only; its title has all of it.
import { eventName } from "../state";

const MOST = 16;

/** The beginning and the end of an id, where what tells ids apart mostly is. */
export function shortId(id: string): string {
  return id.length > MOST ? `${id.slice(0, 7)}…${id.slice(-6)}` : id;
}

export function EventId(props: { n: number }) {
  const id = eventName(props.n);
  return <code title={id.length > MOST ? id : undefined}><bdi>{shortId(id)}</bdi></code>;
}
