/**
 * Verifies an audit log with the team's secret, without the service. Each entry is hashed with the hash before it, so the
 * first entry that does not fit is where the log was changed; what was cut off at the end shows only against a head.
 */
import type { AuditEntry, AuditHead } from './audit-entry.ts';
import { canonicalize } from './transport/canonical-json.ts';

/**
 * What is wrong with a log:
 * `altered`: the entry is not what was written, or the secret is not that of this log;
 * `missing`: entries are left out before this one, or before the head;
 * `reordered`: the entry stands before one that belongs in front of it;
 * `inserted`: the entry does not belong here, and the next one fits in its place;
 * `other_sandbox`: the entry is of another sandbox's log;
 * `other_head`: the log is good in itself, but not the one that the head was read from.
 */
export type AuditProblem = 'altered' | 'missing' | 'reordered' | 'inserted' | 'other_sandbox' | 'other_head';

export type AuditVerdict =
  | {
      valid: true;
      /** Number of entries. */
      entries: number;
      /** True when nothing can be missing at the end: the head was reached, or the sandbox had ended. */
      complete: boolean;
    }
  | {
      valid: false;
      /** How many entries before the fault are good. */
      entries: number;
      /** The `seq` at which the chain breaks. */
      seq: number;
      problem: AuditProblem;
      /** For people. */
      message: string;
    };

/** What else is known of the log. */
export interface VerifyAuditOptions {
  /** Of `sandbox.auditHead()`, from a time when the log was trusted: then a tail that was cut off shows. */
  head?: AuditHead | undefined;
  /** Whose log it must be. Default: that of the first entry. */
  sandboxId?: string | undefined;
}

/** Named so, as not every runtime's types have a name for it. */
type HmacKey = Awaited<ReturnType<typeof crypto.subtle.importKey>>;

const LAST_EVENTS = new Set(['sandbox.destroyed', 'sandbox.failed']);

/**
 * Checks a whole log, or its beginning, with the team's secret. It does not call the service.
 *
 * @example
 * const verdict = await verifyAudit(sandbox.audit(), teamSecret, { head: await sandbox.auditHead() });
 * if (!verdict.valid) throw new Error(verdict.message);
 */
export async function verifyAudit(
  entries: Iterable<AuditEntry> | AsyncIterable<AuditEntry>,
  secret: string,
  options: VerifyAuditOptions = {},
): Promise<AuditVerdict> {
  const verifier = new Verifier(await importSecret(secret), options);
  // One entry is looked at with the next one known.
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
  /** An entry that is missing where the chain breaks: if it comes later, the order was changed. */
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
      return fault('other_sandbox', `entry ${seq} is of ${entry.sandboxId}, not of ${this.#sandboxId}`);
    if (entry.seq > seq) {
      this.#sought = seq;
      return fault('missing', `entry ${seq} is missing: number ${entry.seq} stands in its place`);
    }
    if (entry.seq < seq)
      return fault('inserted', `entry ${seq}: a second number ${entry.seq} stands in its place`);
    if (await this.#fits(entry)) return undefined;
    if (next !== undefined && (await this.#fits({ ...next, seq })))
      return fault('inserted', `entry ${seq} was put in: the one behind it fits in its place`);
    const doubt = seq === 1 ? ', or the secret is not the one of this log (audit_key_id)' : '';
    return fault('altered', `entry ${seq} is not what was written${doubt}`);
  }

  #findFaultOfEnd(): Fault | undefined {
    const head = this.#head;
    if (head === undefined) return undefined;
    if (head.seq > this.#good) {
      const seq = this.#good + 1;
      const message = `the end is missing: ${this.#good} entries are there and good, the head is number ${head.seq}`;
      return { seq, problem: 'missing', message };
    }
    if (head.hmac === this.#hmacAtHead) return undefined;
    const message = `entry ${head.seq} is not the one of the head: they are not of the same log`;
    return { seq: head.seq, problem: 'other_head', message };
  }

  async #fits({ seq, ts, sandboxId, event, data, hmac }: AuditEntry): Promise<boolean> {
    const text = canonicalize({ seq, ts, sandbox_id: sandboxId, event, data });
    return hmac === (await sign(this.#key, `${this.#previous}\n${text}`));
  }
}

function reordered(seq: number, found: number): Fault {
  const message = `entry ${seq}: the order was changed, number ${found} comes later than its place`;
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
