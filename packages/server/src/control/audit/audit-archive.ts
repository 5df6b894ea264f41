/**
 * Copies the logs of ended sandboxes to the object store, where they outlive this machine. Best effort: a log that
 * cannot be stored stays in SQL, where all logs are anyway, and does not hold up later ones. It is retried when the
 * next sandbox ends, every hour by the control that leads, and at the next start. Two controls may store one log at a time: it has
 * ended, so both store the same bytes.
 */
import type { Logger } from 'pino';
import type { ObjectStore } from '../../lib/objects/object-store.ts';
import type { Leadership } from '../ownership/leadership.ts';
import { withDeadline } from '../../lib/waiting/deadline.ts';
import type { SandboxRow } from '../sandbox/record/sandbox-tables.ts';
import type { Clock } from '../time/clock.ts';
import { formatEntry } from './audit-chain.ts';
import type { AuditStore } from './audit-store.ts';
import { readEntries } from './read-entries.ts';

const PAGE_LOGS = 100;
const RETRY_MS = 3_600_000;
const STOP_MS = 5000;
/** After this many failures in a row the cause is taken to be the store, not a log. */
const MAX_FAILURES = 16;

export interface AuditArchiveParts {
  leadership: Leadership;
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
    this.#timer = setInterval(() => {
      if (parts.leadership.isLeading) this.wake();
    }, RETRY_MS);
  }

  /** Call after a sandbox has ended. Stores all unstored logs in the background, one after the other. */
  wake(): void {
    this.#isAsked = true;
    if (this.#isOver) return;
    this.#work ??= this.#run();
  }

  /** Stops. Waits a while for the log that is being stored: the object store may be away. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#isOver = true;
    clearInterval(this.#timer);
    if (this.#work === undefined) return;
    await withDeadline('storing an audit log', STOP_MS, this.#work).catch((error: unknown) =>
      this.#parts.log.warn({ err: error }, 'an audit log is stored after the next start'),
    );
  }

  async #run(): Promise<void> {
    try {
      while (this.#isAsked && !this.#isOver) {
        this.#isAsked = false;
        await this.#storeAll();
      }
    } catch (error) {
      this.#isAsked = false;
      this.#parts.log.warn(
        { err: error },
        'audit logs could not be put into the object store; they are tried again later',
      );
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

/** Object key of an ended sandbox's log. */
function auditKey(organizationId: string, sandboxId: string): string {
  return `audit/${organizationId}/${sandboxId}.ndjson`;
}
