import { z } from 'zod';
import { become } from '../../../lib/process/become.ts';
import { stretchDeadlines } from '../../../lib/waiting/deadline.ts';
import { serveUnpacking } from './unpack-server.ts';

const Options = z.object({
  uid: z.int().positive().nullable(),
  tar2sqfs: z.string(),
  /** As in COPPICE_DEADLINE_FACTOR. */
  deadlineFactor: z.number(),
});
export type UnpackOptions = z.infer<typeof Options>;

/**
 * Runs the unpacking role in the working directory, until its standard input ends, as it does with the runner. `argument` is
 * {@link UnpackOptions} as JSON; a process of root becomes the user `uid`, when its code is loaded.
 */
export async function runUnpackRole(argument: string): Promise<void> {
  const { uid, tar2sqfs, deadlineFactor } = Options.parse(JSON.parse(argument));
  stretchDeadlines(deadlineFactor);
  if (uid !== null) become({ uid, gid: uid });
  process.umask(0o077);
  process.stdin.resume().once('close', () => process.exit(0));
  await serveUnpacking(tar2sqfs);
  process.stdout.write('ready\n');
}
