/** Detects whether systemd's journal keeps the output of this process, where other accounts than root can read it. */
import { fstatSync } from 'node:fs';

/**
 * Whether the descriptor is the journal's socket. JOURNAL_STREAM of systemd.exec(5) holds the socket's device and
 * inode. The variable alone proves nothing, because it stays set when the output is redirected.
 */
export function isJournal(descriptor: number, journalStream = process.env['JOURNAL_STREAM']): boolean {
  const [, device, inode] = /^(\d+):(\d+)$/u.exec(journalStream ?? '') ?? [];
  if (device === undefined || inode === undefined) return false;
  const { dev, ino } = fstatSync(descriptor, { bigint: true });
  return dev === BigInt(device) && ino === BigInt(inode);
}
