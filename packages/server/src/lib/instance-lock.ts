/**
 * One process of each role for a data directory: two controls would each run the idle timers of sandboxes whose
 * requests the other sees, and two runners would end each other's VMs. The lock is a name in the kernel's abstract
 * socket namespace, which the kernel itself gives back however the holder ends.
 */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, realpath } from 'node:fs/promises';
import { createServer } from 'node:net';

export type LockedRole = 'control' | 'runner' | 'image import';

export class InstanceLockedError extends Error {
  constructor(role: string, dataDir: string, cause: unknown) {
    super(`another ${role} works in ${dataDir}: stop it, or choose another data directory`, { cause });
    this.name = 'InstanceLockedError';
  }
}

/** Throws {@link InstanceLockedError} when another process of that role holds the directory. */
export async function lockInstance(role: LockedRole, dataDir: string): Promise<AsyncDisposable> {
  await mkdir(dataDir, { recursive: true, mode: 0o711 });
  const hash = createHash('sha256')
    .update(await realpath(dataDir))
    .digest('hex');
  const server = createServer((socket) => socket.destroy()).unref();
  server.listen(`\0coppice-${role.replaceAll(' ', '-')}-${hash}`);
  try {
    await once(server, 'listening');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
    throw new InstanceLockedError(role, dataDir, error);
  }
  return {
    [Symbol.asyncDispose]: async () => {
      server.close();
      await once(server, 'close');
    },
  };
}
