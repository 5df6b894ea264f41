/**
 * Proves that the power cuts would reveal a missing fsync: blocks that were overwritten past the page cache and not
 * flushed must have their old content after a cut. Otherwise the cuts prove nothing.
 */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { SetupError } from '../scripts/setup/setup-error.mjs';
import type { LabHost } from './host.ts';

const FILE = '/var/tmp/lab-overwritten';
const OVERWRITES = 40;
/** More than one attempt, because another program may cause a flush right before the cut. */
const MAX_ATTEMPTS = 3;
const OVERWRITE = `i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); printf '%-4096d' $i | dd of=${FILE} bs=4096 conv=notrunc oflag=direct status=none && echo $i; done`;

/** Cuts the power after unflushed overwrites, boots, and throws SetupError if the new content is there. */
export async function cutAfterOverwrites(host: LabHost): Promise<void> {
  for (let attempt = 1; attempt <= MAX_ATTEMPTS; attempt++) {
    await host.start();
    await host.run(`printf '%-4096d' 0 > ${FILE} && sync ${FILE}`);
    const answered = await overwriteAndCut(host);
    await host.start();
    const kept = Number(await host.read(`cat ${FILE}`));
    if (kept < answered) return;
  }
  throw new SetupError('the disk of the host keeps unflushed writes: a missing fsync would not be found', {
    remedy: 'make sure that nbdkit runs with cache=writeback',
  });
}

/** Returns the last number that was acknowledged before the cut. */
async function overwriteAndCut(host: LabHost): Promise<number> {
  const ssh = spawn('ssh', [...host.sshWords, 'root@127.0.0.1', OVERWRITE], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  let answered = 0;
  try {
    for await (const line of createInterface({ input: ssh.stdout })) {
      answered = Number(line);
      if (answered >= OVERWRITES) break;
    }
    await host.cutPower();
  } finally {
    ssh.kill('SIGKILL');
  }
  if (answered < OVERWRITES)
    throw new SetupError(`overwriting ${FILE} on the host failed after ${answered} overwrites`);
  return answered;
}
