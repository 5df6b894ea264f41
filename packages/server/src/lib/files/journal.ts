/** Whether systemd's journal keeps the output of this process, for other accounts than root to read. */
import { fstatSync } from 'node:fs';

/**
 * By JOURNAL_STREAM of systemd.exec(5), device and inode of the journal's socket. The variable alone says nothing: it stays
 * set when the output is redirected.
 */
export function isJournal(descriptor: number, journalStream = process.env['JOURNAL_STREAM']): boolean {
  const [, device, inode] = /^(\d+):(\d+)$/u.exec(journalStream ?? '') ?? [];
  if (device === undefined || inode === undefined) return false;
  const { dev, ino } = fstatSync(descriptor, { bigint: true });
  return dev === BigInt(device) && ino === BigInt(inode);
}
