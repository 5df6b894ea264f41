import { chownSync } from 'node:fs';

/** Gives a file to the account of a VM; there is nothing to give where that is our own. */
export function giveTo(path: string, uid: number): void {
  if (uid !== process.getuid?.()) chownSync(path, uid, uid);
}

/** Makes a file that a VM's account wrote our own. */
export function takeBack(path: string): void {
  if (process.getuid?.() === 0) chownSync(path, 0, 0);
}
