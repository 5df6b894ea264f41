/**
 * A record of all acknowledged changes, kept outside of the host: after a power cut the service must still have them.
 */
import { existsSync, readFileSync } from 'node:fs';
import { rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

export interface Acknowledged {
  /** The hibernated sandbox, and the token that it holds. */
  asleep?: { id: string; token: string };
  snapshot?: { id: string; runId: string; token: string };
  /** By sandbox id: the acknowledged commands, and the last entry of the audit log that was read. */
  logs: Record<string, { commands: string[]; head?: { seq: number; hmac: string | null } }>;
  /** Bills in cents, by id of the destroyed sandbox. */
  bills: Record<string, number>;
  /** By API key: its id, and whether it is valid or was revoked. */
  keys: Record<string, { id: string; isGood: boolean }>;
  /** Passwords by e-mail address of the account. */
  accounts: Record<string, string>;
  /** Contents of the persistent disk that its guest has synced: a token, and the SHA-256 of a file. */
  disk?: DiskContents;
  /** By name of a snapshot of that disk. */
  diskSnapshots: Record<string, DiskContents>;
}

export interface DiskContents {
  token: string;
  sum: string;
}

export class Ledger {
  readonly #path: string;
  readonly acknowledged: Acknowledged;

  constructor(directory: string) {
    this.#path = join(directory, 'ledger.json');
    this.acknowledged = { logs: {}, bills: {}, keys: {}, accounts: {}, diskSnapshots: {} };
    if (existsSync(this.#path))
      Object.assign(this.acknowledged, JSON.parse(readFileSync(this.#path, 'utf8')));
  }

  /** Returns the record of a sandbox's audit log, and creates it if needed. */
  logOf(id: string): Acknowledged['logs'][string] {
    return (this.acknowledged.logs[id] ??= { commands: [] });
  }

  /** Saves the ledger, for people and for the next run. */
  async keep(): Promise<void> {
    await writeFile(`${this.#path}.new`, JSON.stringify(this.acknowledged, undefined, 2));
    await rename(`${this.#path}.new`, this.#path);
  }
}
