// A link inside the page.
import type { ComponentChildren } from "preact";
import type { Route } from "../router";
import { go, link } from "../state";

/** A link inside the page: no reload, but a real address for a new tab. */
export function Link({ to, children, ...more }: { to: Route; children: ComponentChildren; class?: string; title?: string }) {
  const onClick = (event: MouseEvent): void => {
    if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(to);
  };
  return <a href={link(to)} onClick={onClick} {...more}>{children}</a>;
}
