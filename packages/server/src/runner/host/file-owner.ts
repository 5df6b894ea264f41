import { chownSync } from 'node:fs';

/** Gives a file to the account of a VM. Does nothing when the runner itself runs as that account. */
export function giveTo(path: string, uid: number): void {
  if (uid !== process.getuid?.()) chownSync(path, uid, uid);
}

/** Makes root the owner of a file that a VM's account wrote. Does nothing when the runner is not root. */
export function takeBack(path: string): void {
  if (process.getuid?.() === 0) chownSync(path, 0, 0);
}
