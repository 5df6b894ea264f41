/** Choices that outlast a visit. Nothing secret is kept here: any script of this origin can read it. */
const PREFIX = 'coppice-';

/** Returns a choice; null without one. */
export function recall(name: string): string | null {
  try {
    return localStorage.getItem(PREFIX + name);
  } catch (error) {
    // A browser may forbid the storage; then nothing is remembered.
    console.debug(error);
    return null;
  }
}

export function remember(name: string, value: string): void {
  try {
    localStorage.setItem(PREFIX + name, value);
  } catch (error) {
    console.debug(error);
  }
}
