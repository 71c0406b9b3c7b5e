// Copying. Always true: what says that it was copied was copied.

/** Puts a text into the clipboard; whether it is there. Without https or localhost a browser has only the old way. */
export async function copied(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedFromField(text);
  }
}

function copiedFromField(text: string): boolean {
  const before = document.activeElement;
  const room = before?.closest("dialog") ?? document.body; // outside of an open dialog nothing can be selected
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "hidden";
  room.append(field);
  field.select();
  try {
    return document.execCommand("copy");
  } finally {
    field.remove();
    if (before instanceof HTMLElement) before.focus();
  }
}
