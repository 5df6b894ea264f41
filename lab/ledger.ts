/** What was acknowledged, kept outside of the host: after a power cut all of it must be there. */
import { existsSync, readFileSync } from 'node:fs';
import { rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

export interface Acknowledged {
  /** Hibernated, with this state inside. */
  asleep?: { id: string; token: string };
  snapshot?: { id: string; runId: string; token: string };
  /** Of each sandbox the commands that were answered, and the last entry of its audit log that was read. */
  logs: Record<string, { commands: string[]; head?: { seq: number; hmac: string | null } }>;
  /** Of each sandbox that was destroyed, in cents. */
  bills: Record<string, number>;
  /** API keys: whether each is good, or was revoked. */
  keys: Record<string, { id: string; isGood: boolean }>;
  /** E-mail addresses of accounts, with their passwords. */
  accounts: Record<string, string>;
}

export class Ledger {
  readonly #path: string;
  readonly acknowledged: Acknowledged;

  constructor(directory: string) {
    this.#path = join(directory, 'ledger.json');
    this.acknowledged = existsSync(this.#path)
      ? (JSON.parse(readFileSync(this.#path, 'utf8')) as Acknowledged)
      : { logs: {}, bills: {}, keys: {}, accounts: {} };
  }

  /** Of the sandbox's audit log. */
  logOf(id: string): Acknowledged['logs'][string] {
    return (this.acknowledged.logs[id] ??= { commands: [] });
  }

  /** Keeps it for a person who wants to look, and for the next run. */
  async keep(): Promise<void> {
    await writeFile(`${this.#path}.new`, JSON.stringify(this.acknowledged, undefined, 2));
    await rename(`${this.#path}.new`, this.#path);
  }
}
