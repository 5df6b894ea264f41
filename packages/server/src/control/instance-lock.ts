/**
 * One control per data directory: two would each run the idle timers of sandboxes whose requests the other sees. The lock
 * is a name in the kernel's abstract socket namespace, which the kernel itself gives back however the holder ends.
 */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, realpath } from 'node:fs/promises';
import { createServer } from 'node:net';

/** Throws when another process holds the directory. */
export async function lockInstance(dataDir: string): Promise<AsyncDisposable> {
  await mkdir(dataDir, { recursive: true, mode: 0o711 });
  const hash = createHash('sha256')
    .update(await realpath(dataDir))
    .digest('hex');
  const server = createServer((socket) => socket.destroy()).unref();
  server.listen(`\0coppice-control-${hash}`);
  try {
    await once(server, 'listening');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
    throw new Error(`another control works in ${dataDir}: stop it, or choose another data directory`, {
      cause: error,
    });
  }
  return {
    [Symbol.asyncDispose]: async () => {
      server.close();
      await once(server, 'close');
    },
  };
}
