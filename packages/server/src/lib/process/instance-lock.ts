/**
 * One process of each role for a data directory: two controls would each run the idle timers of sandboxes whose
 * requests the other sees, and two runners would end each other's VMs. And one for a run directory: of two services each
 * would replace the other's sockets, and be answered by the other's database. The lock is a name in the kernel's abstract
 * socket namespace, which the kernel itself gives back however the holder ends. Whoever connects to it is told whether
 * the holder is about to leave, so that a service that was killed and started again at once takes over from the roles
 * that the old one left draining.
 */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, realpath } from 'node:fs/promises';
import { connect, createServer, type Server } from 'node:net';
import { resolve } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { stretched } from '../waiting/deadline.ts';

/** A role whose supervisor has just been killed does not know it yet. */
const NOTICE_MS = 2_000;
/** Longer than what a role gives itself to let requests end. */
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
  /** Tells whoever waits that the lock will be free. */
  leave(): void;
}

/** Throws {@link InstanceLockedError} when another process of that role holds the directory and stays. */
export async function lockInstance(role: LockedRole, dataDir: string): Promise<InstanceLock> {
  const lock = await lockDirectory(role, dataDir);
  if (lock !== undefined) return lock;
  throw new InstanceLockedError(
    `another ${role} works in ${dataDir}: stop it, or choose another data directory (COPPICE_DATA_DIR)`,
  );
}

/** The same for both directories of a role. */
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
    `another ${role} has its sockets in ${runDir}, that of a service with another data directory: leave COPPICE_RUN_DIR ` +
      'unset, it then follows from COPPICE_DATA_DIR, or give each service a COPPICE_RUN_DIR of its own',
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

/** Undefined when another process of that role holds it and stays. */
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

/** Undefined when another process has it. */
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

/** What the holder says; undefined when it is gone, or says nothing. */
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
