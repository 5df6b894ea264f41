/**
 * Locks that allow one process of each role per data directory and per run directory. Two controls on one data
 * directory would each run the idle timers of sandboxes whose requests the other sees, and two runners would end each
 * other's VMs. Two services on one run directory would replace each other's sockets, and receive answers from each
 * other's database. The lock is a name in the kernel's abstract socket namespace; the kernel releases it however the
 * holder ends. The holder answers each connection with whether it is about to leave. So a service that is restarted at
 * once after a kill waits for the draining roles of the old one, and takes over.
 */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, realpath } from 'node:fs/promises';
import { connect, createServer, type Server } from 'node:net';
import { resolve } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { stretched } from '../waiting/deadline.ts';

/** Time for a role to notice that its supervisor has been killed. */
const NOTICE_MS = 2_000;
/** Longer than the time in which a role lets requests end. */
const LEAVING_MS = 45_000;
const RETRY_MS = 50;
const ANSWER_DEADLINE_MS = 1_000;
const LEAVING = 'leaving';
const STAYING = 'staying';

export type LockedRole = 'control' | 'runner' | 'image import';

export class InstanceLockedError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'InstanceLockedError';
  }
}

export interface InstanceLock extends AsyncDisposable {
  /** Announces to waiting processes that the lock will become free. */
  leave(): void;
}

/** Locks a directory. Throws {@link InstanceLockedError} if another process of the role holds the lock and stays. */
export async function lockInstance(role: LockedRole, dataDir: string): Promise<InstanceLock> {
  const lock = await lockDirectory(role, dataDir);
  if (lock !== undefined) return lock;
  throw new InstanceLockedError(
    `another ${role} works in ${dataDir}: stop it, or choose another data directory (COPPICE_DATA_DIR)`,
  );
}

/** Locks both directories of a role. Throws {@link InstanceLockedError} as {@link lockInstance} does. */
export async function lockDirectories(
  role: LockedRole,
  { dataDir, runDir }: { dataDir: string; runDir: string },
): Promise<InstanceLock> {
  const data = await lockInstance(role, dataDir);
  if (resolve(runDir) === resolve(dataDir)) return data;
  const run = await lockDirectory(role, runDir);
  if (run !== undefined) return joinLocks(data, run);
  await data[Symbol.asyncDispose]();
  throw new InstanceLockedError(
    `another ${role} has its sockets in ${runDir}, and belongs to a service with another data directory: leave ` +
      'COPPICE_RUN_DIR unset, so that it follows from COPPICE_DATA_DIR, or give each service its own COPPICE_RUN_DIR',
  );
}

function joinLocks(...locks: InstanceLock[]): InstanceLock {
  return {
    leave: () => {
      for (const lock of locks) lock.leave();
    },
    [Symbol.asyncDispose]: async () => {
      for (const lock of locks.toReversed()) await lock[Symbol.asyncDispose]();
    },
  };
}

/** Locks one directory; returns undefined if another process of the role holds the lock and stays. */
async function lockDirectory(role: LockedRole, directory: string): Promise<InstanceLock | undefined> {
  await mkdir(directory, { recursive: true, mode: 0o711 });
  const hash = createHash('sha256')
    .update(await realpath(directory))
    .digest('hex');
  const name = `\0coppice-${role.replaceAll(' ', '-')}-${hash}`;
  const startedAt = performance.now();
  let patienceMs = NOTICE_MS;
  for (;;) {
    const lock = await take(name);
    if (lock !== undefined) return lock;
    if ((await askHolder(name)) === LEAVING) patienceMs = LEAVING_MS;
    if (performance.now() - startedAt > patienceMs) return undefined;
    await delay(RETRY_MS);
  }
}

/** Takes the lock; returns undefined if another process holds it. */
async function take(name: string): Promise<InstanceLock | undefined> {
  let word = STAYING;
  const server: Server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.end(word);
  }).unref();
  server.listen(name);
  try {
    await once(server, 'listening');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
    return undefined;
  }
  return {
    leave: () => {
      word = LEAVING;
    },
    [Symbol.asyncDispose]: async () => {
      server.close();
      await once(server, 'close');
    },
  };
}

/** Returns the answer of the holder; undefined if it is gone or does not answer. */
async function askHolder(name: string): Promise<string | undefined> {
  const socket = connect(name);
  const timer = setTimeout(() => socket.destroy(new Error('no answer')), stretched(ANSWER_DEADLINE_MS));
  try {
    return await text(socket);
  } catch {
    return undefined;
  } finally {
    clearTimeout(timer);
    socket.destroy();
  }
}
