import { chmodSync, truncateSync, writeFileSync } from 'node:fs';
import { runCommand } from '../../lib/process/run-command.ts';

const FORMAT_OPTIONS = 'lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0';
const MIB = 1024 * 1024;

/**
 * Creates an empty ext4 file system, sparse and read-only. It lies under all overlays of a template's disk and of
 * everything made from that template. They hold hard links to this very file: another one made alike has other bytes.
 */
export async function makeScratchBase(path: string, how: { diskMiB: number; mke2fs: string }): Promise<void> {
  writeFileSync(path, '', { mode: 0o644 });
  truncateSync(path, how.diskMiB * MIB);
  await runCommand(how.mke2fs, ['-t', 'ext4', '-F', '-q', '-m', '0', '-E', FORMAT_OPTIONS, path]);
  chmodSync(path, 0o444);
}
