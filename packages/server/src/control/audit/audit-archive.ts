/**
 * Puts the logs of ended sandboxes into the object store, where they outlive this machine. At its best effort: a log that
 * could not be put there stays in SQL, where it is anyway, keeps none that come after it, and is tried again with the next
 * end, every hour, and at the next start.
 */
import type { Logger } from 'pino';
import type { ObjectStore } from '../../lib/objects/object-store.ts';
import type { SandboxRow } from '../sandbox/record/sandbox-tables.ts';
import type { Clock } from '../time/clock.ts';
import { formatEntry } from './audit-chain.ts';
import type { AuditStore } from './audit-store.ts';
import { readEntries } from './read-entries.ts';

const PAGE_LOGS = 100;
const RETRY_MS = 3_600_000;
/** One after the other; then it is the store that fails, and not a log. */
const MAX_FAILURES = 16;

export interface AuditArchiveParts {
  store: AuditStore;
  objects: ObjectStore;
  clock: Pick<Clock, 'wallMs'>;
  log: Logger;
}

type Ended = Pick<SandboxRow, 'id' | 'organization_id'>;

export class AuditArchive implements AsyncDisposable {
  readonly #parts: AuditArchiveParts;
  readonly #timer: NodeJS.Timeout;
  #isOver = false;
  #isAsked = false;
  #work: Promise<void> | undefined;

  constructor(parts: AuditArchiveParts) {
    this.#parts = parts;
    this.#timer = setInterval(() => this.wake(), RETRY_MS);
  }

  /** Some sandbox has ended. In the background all that is not there is put there, one after the other. */
  wake(): void {
    this.#isAsked = true;
    if (this.#isOver) return;
    this.#work ??= this.#run();
  }

  /** Waits for the one that is under way. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#isOver = true;
    clearInterval(this.#timer);
    await this.#work;
  }

  async #run(): Promise<void> {
    try {
      while (this.#isAsked && !this.#isOver) {
        this.#isAsked = false;
        await this.#storeAll();
      }
    } catch (error) {
      this.#isAsked = false;
      this.#parts.log.warn({ err: error }, 'audit logs could not be put into the object store; tried again');
    }
    this.#work = undefined;
  }

  async #storeAll(): Promise<void> {
    const { store, log } = this.#parts;
    let failed = 0;
    let failedInARow = 0;
    for (;;) {
      const ended = await store.listUnstored(PAGE_LOGS, { skip: failed });
      for (const one of ended) {
        if (this.#isOver) return;
        try {
          await this.#storeOne(one);
          failedInARow = 0;
        } catch (error) {
          failed += 1;
          failedInARow += 1;
          if (failedInARow === MAX_FAILURES) throw error;
          log.warn({ err: error, sandbox: one.id }, 'an audit log could not be put into the object store');
        }
      }
      if (ended.length < PAGE_LOGS) return;
    }
  }

  async #storeOne({ id, organization_id }: Ended): Promise<void> {
    const { store, objects, clock } = this.#parts;
    await objects.put(auditKey(organization_id, id), this.#readLog(id));
    await store.noteStored(id, clock.wallMs());
  }

  async *#readLog(sandboxId: string): AsyncGenerator<string> {
    const { store } = this.#parts;
    for await (const page of readEntries({ store, sandboxId, afterSeq: 0 }))
      yield page.map(formatEntry).join('');
  }
}

/** Where the log of an ended sandbox is. */
export function auditKey(organizationId: string, sandboxId: string): string {
  return `audit/${organizationId}/${sandboxId}.ndjson`;
}
