import { setTimeout as delay } from 'node:timers/promises';
import { CoppiceError, type Sandbox } from '../../sdk/src/index.ts';
import type { Creations } from './definition/tool.ts';

/** More at once would only use up the rate limit of the organization. */
const AT_ONCE = 8;
const RETRY_MS = 1_000;
/** For a sandbox whose caller has left: as long as a restart of the service may take. */
const DISCARD_MS = 120_000;

/** Sandboxes that a session created. */
export class CreatedSandboxes implements Creations {
  readonly #report: (text: string) => void;
  readonly #sandboxes = new Map<string, Sandbox>();
  readonly #pending = new Set<Promise<unknown>>();

  constructor(report: (text: string) => void) {
    this.#report = report;
  }

  /** Number of creates in progress. */
  get pending(): number {
    return this.#pending.size;
  }

  async track<T>(create: () => Promise<T>): Promise<T> {
    const made = create();
    this.#pending.add(made);
    try {
      return await made;
    } finally {
      this.#pending.delete(made);
    }
  }

  add(sandboxes: readonly Sandbox[]): void {
    for (const sandbox of sandboxes) this.#sandboxes.set(sandbox.id, sandbox);
  }

  async discard(sandboxes: readonly Sandbox[]): Promise<void> {
    for (const id of await destroyAll(sandboxes, DISCARD_MS))
      this.#report(
        `could not destroy ${id}, which a cancelled call created; unless it has an idle timeout, it stays`,
      );
  }

  /** Waits for the creates in progress. Returns how many are left after the deadline. */
  async settle(deadlineMs: number): Promise<number> {
    const end = new AbortController();
    const deadline = delay(deadlineMs, undefined, { signal: end.signal }).catch(() => undefined);
    await Promise.race([Promise.allSettled(this.#pending), deadline]);
    end.abort();
    return this.#pending.size;
  }

  /** Destroys those that still exist, within the deadline. Returns the ids of those that could not be destroyed. */
  async destroyAll(deadlineMs: number): Promise<string[]> {
    const sandboxes = [...this.#sandboxes.values()];
    this.#sandboxes.clear();
    return destroyAll(sandboxes, deadlineMs);
  }
}

async function destroyAll(sandboxes: readonly Sandbox[], deadlineMs: number): Promise<string[]> {
  const signal = AbortSignal.timeout(deadlineMs);
  const failed: string[] = [];
  const left = [...sandboxes];
  const work = async (): Promise<void> => {
    for (let sandbox = left.shift(); sandbox !== undefined; sandbox = left.shift())
      if (!(await destroy(sandbox, signal))) failed.push(sandbox.id);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return failed;
}

/** Returns whether the sandbox has ended. Tries again until the signal aborts, unless that cannot help. */
async function destroy(sandbox: Sandbox, signal: AbortSignal): Promise<boolean> {
  while (!signal.aborted) {
    try {
      await sandbox.destroy({ signal });
      return true;
    } catch (error) {
      if (await hasEnded(sandbox, error, signal)) return true;
      if (!(error instanceof CoppiceError) || !mayPass(error)) return false;
    }
    await delay(RETRY_MS, undefined, { signal }).catch(() => undefined);
  }
  return false;
}

async function hasEnded(sandbox: Sandbox, error: unknown, signal: AbortSignal): Promise<boolean> {
  if (!(error instanceof CoppiceError)) return false;
  if (error.code !== 'invalid_state') return error.code === 'not_found';
  const info = await sandbox.info({ signal }).catch(() => undefined);
  return info?.status === 'destroyed' || info?.status === 'failed';
}

/** Too many requests, an operation of the sandbox, or a service that restarts. */
function mayPass({ status }: CoppiceError): boolean {
  return status === 0 || status === 409 || status === 429 || status >= 500;
}
