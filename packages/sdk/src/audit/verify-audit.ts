/**
 * Verifies an audit log offline with the team's secret. The hash of each entry covers the hash of the previous entry,
 * so the log was changed at the first entry whose hash does not match. A log that was cut off at its end is detected
 * only by comparison with a head.
 */
import type { AuditEntry, AuditHead } from './audit-entry.ts';
import { canonicalize } from '../transport/canonical-json.ts';

/**
 * The fault in an invalid log:
 * `altered`: the entry was changed, or the secret is not that of this log;
 * `missing`: entries are missing before this one, or before the head;
 * `reordered`: the entry precedes an entry that belongs before it;
 * `inserted`: the entry does not belong here, and the next one fits in its place;
 * `other_sandbox`: the entry belongs to the log of another sandbox;
 * `other_head`: the log is valid, but the head was read from another log.
 */
export type AuditProblem = 'altered' | 'missing' | 'reordered' | 'inserted' | 'other_sandbox' | 'other_head';

/** Result of {@link verifyAudit}. */
export type AuditVerdict =
  | {
      valid: true;
      /** Number of entries. */
      entries: number;
      /**
       * True when no entry can be missing at the end: the log reaches the head, or ends with the end of the sandbox.
       */
      complete: boolean;
    }
  | {
      valid: false;
      /** Number of valid entries before the fault. */
      entries: number;
      /** The `seq` at which the chain breaks. */
      seq: number;
      /** Kind of the fault. */
      problem: AuditProblem;
      /** Description of the fault for people. */
      message: string;
    };

/** Options of {@link verifyAudit}. */
export interface VerifyAuditOptions {
  /**
   * Head from an earlier `sandbox.auditHead()`, kept where it is trusted. It detects a log that was cut off before it.
   */
  head?: AuditHead | undefined;
  /** Id of the sandbox whose log it must be. Default: that of the first entry. */
  sandboxId?: string | undefined;
}

/** Type of an imported key. The types of some runtimes have no name for it. */
type HmacKey = Awaited<ReturnType<typeof crypto.subtle.importKey>>;

const LAST_EVENTS = new Set(['sandbox.destroyed', 'sandbox.failed']);

/**
 * Verifies a whole log, or a prefix of it, with the team's secret. It makes no request. Resolves with a verdict for any
 * log; rejects with `TypeError` when the secret is empty, and with the error of `entries` if reading them fails.
 *
 * @example
 * const verdict = await verifyAudit(sandbox.audit(), teamSecret, { head: await sandbox.auditHead() });
 * if (!verdict.valid) console.error(verdict.message);
 */
export async function verifyAudit(
  entries: Iterable<AuditEntry> | AsyncIterable<AuditEntry>,
  secret: string,
  options: VerifyAuditOptions = {},
): Promise<AuditVerdict> {
  const verifier = new Verifier(await importSecret(secret), options);
  // Each entry is checked together with the next one, which tells an inserted entry from an altered one.
  let current: AuditEntry | undefined;
  for await (const next of entries) {
    if (current !== undefined) await verifier.take(current, next);
    current = next;
  }
  if (current !== undefined) await verifier.take(current, undefined);
  return verifier.finish();
}

interface Fault {
  seq: number;
  problem: AuditProblem;
  message: string;
}

class Verifier {
  readonly #key: HmacKey;
  readonly #head: AuditHead | undefined;
  #sandboxId: string | undefined;
  #previous = '';
  #good = 0;
  #hmacAtHead: string | null = null;
  #lastEvent = '';
  #fault: Fault | undefined;
  /** The `seq` of the entry that is missing where the chain breaks. If it comes later, the order was changed. */
  #sought: number | undefined;

  constructor(key: HmacKey, { head, sandboxId }: VerifyAuditOptions) {
    this.#key = key;
    this.#head = head;
    this.#sandboxId = sandboxId;
  }

  async take(entry: AuditEntry, next: AuditEntry | undefined): Promise<void> {
    if (this.#fault !== undefined) {
      if (entry.seq === this.#sought) this.#fault = reordered(this.#fault.seq, entry.seq);
      return;
    }
    this.#begin(entry);
    this.#fault = await this.#findFault(entry, next);
    if (this.#fault !== undefined) return;
    this.#previous = entry.hmac;
    this.#lastEvent = entry.event;
    this.#good += 1;
    if (entry.seq === this.#head?.seq) this.#hmacAtHead = entry.hmac;
  }

  finish(): AuditVerdict {
    const fault = this.#fault ?? this.#findFaultOfEnd();
    if (fault !== undefined) return { valid: false, entries: this.#good, ...fault };
    const complete = this.#head !== undefined || LAST_EVENTS.has(this.#lastEvent);
    return { valid: true, entries: this.#good, complete };
  }

  #begin(first: AuditEntry): void {
    this.#sandboxId ??= first.sandboxId;
    if (this.#good === 0) this.#previous = `coppice-audit-v1:${this.#sandboxId}`;
  }

  async #findFault(entry: AuditEntry, next: AuditEntry | undefined): Promise<Fault | undefined> {
    const seq = this.#good + 1;
    const fault = (problem: AuditProblem, message: string): Fault => ({ seq, problem, message });
    if (entry.sandboxId !== this.#sandboxId)
      return fault('other_sandbox', `entry ${seq} belongs to ${entry.sandboxId}, not to ${this.#sandboxId}`);
    if (entry.seq > seq) {
      this.#sought = seq;
      return fault('missing', `entry ${seq} is missing: entry ${entry.seq} is in its place`);
    }
    if (entry.seq < seq)
      return fault('inserted', `entry ${seq} is replaced by a second entry ${entry.seq} in its place`);
    if (await this.#fits(entry)) return undefined;
    if (next !== undefined && (await this.#fits({ ...next, seq })))
      return fault('inserted', `entry ${seq} was inserted: the next entry fits in its place`);
    const doubt = seq === 1 ? ', or the secret is not that of this log (see audit_key_id)' : '';
    return fault('altered', `entry ${seq} is not what was written${doubt}`);
  }

  #findFaultOfEnd(): Fault | undefined {
    const head = this.#head;
    if (head === undefined) return undefined;
    if (head.seq > this.#good) {
      const seq = this.#good + 1;
      const message = `the end is missing: ${this.#good} entries are present and valid, the head is entry ${head.seq}`;
      return { seq, problem: 'missing', message };
    }
    if (head.hmac === this.#hmacAtHead) return undefined;
    const message = `entry ${head.seq} differs from the head: the head belongs to another log`;
    return { seq: head.seq, problem: 'other_head', message };
  }

  async #fits({ seq, ts, sandboxId, event, data, hmac }: AuditEntry): Promise<boolean> {
    const text = canonicalize({ seq, ts, sandbox_id: sandboxId, event, data });
    return hmac === (await sign(this.#key, `${this.#previous}\n${text}`));
  }
}

function reordered(seq: number, found: number): Fault {
  const message = `entry ${seq}: the order was changed, entry ${found} comes after its place`;
  return { seq, problem: 'reordered', message };
}

function importSecret(secret: string): Promise<HmacKey> {
  if (secret === '') throw new TypeError('the team secret is empty');
  const algorithm = { name: 'HMAC', hash: 'SHA-256' };
  return crypto.subtle.importKey('raw', new TextEncoder().encode(secret), algorithm, false, ['sign']);
}

async function sign(key: HmacKey, text: string): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.sign('HMAC', key, new TextEncoder().encode(text)));
  return `sha256:${Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('')}`;
}
