// Sharing what is on the screen.
import { fullLink } from "../state";
import { say } from "./toast";

/** Copies the address of what is on the screen. */
export async function copyLink(): Promise<void> {
  try {
    await navigator.clipboard.writeText(fullLink());
    say("Link copied");
  } catch {
    say(`Copy it from here: ${fullLink()}`);
  }
}
