/**
 * Shows that a missing fsync would be found: blocks that are overwritten past the page cache and not flushed must be as
 * they were after the power is cut. Otherwise the cuts prove nothing.
 */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { SetupError } from '../scripts/setup/setup-error.mjs';
import type { LabHost } from './host.ts';

const FILE = '/var/tmp/lab-overwritten';
const OVERWRITES = 40;
/** A flush of somebody else's may come right before the cut. */
const MAX_ATTEMPTS = 3;
const OVERWRITE = `i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); printf '%-4096d' $i | dd of=${FILE} bs=4096 conv=notrunc oflag=direct status=none && echo $i; done`;

/** Leaves the host off. */
export async function cutAfterOverwrites(host: LabHost): Promise<void> {
  for (let attempt = 1; attempt <= MAX_ATTEMPTS; attempt++) {
    await host.start();
    await host.run(`printf '%-4096d' 0 > ${FILE} && sync ${FILE}`);
    const answered = await overwriteAndCut(host);
    await host.start();
    const kept = Number(await host.read(`cat ${FILE}`));
    if (kept < answered) return;
  }
  throw new SetupError(
    'the disk of the host keeps what was not flushed: a missing fsync would not be found',
    {
      remedy: 'see that nbdkit runs with cache=writeback',
    },
  );
}

/** The last number that was answered before the cut. */
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
    throw new SetupError(`overwriting ${FILE} on the host failed after ${answered} times`);
  return answered;
}
