// Sharing what is on the screen.
import { fullLink } from "../state";
import { copied } from "./copying";
import { say } from "./toast";

/** Copies the address of what is on the screen. */
export async function copyLink(): Promise<void> {
  say(await copied(fullLink()) ? "Link copied" : `Copy it from here: ${fullLink()}`);
}
