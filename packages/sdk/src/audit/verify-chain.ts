/**
 * Verifies the hash chain of a log. The hash of each entry covers the hash of the previous entry, so the log was changed
 * at the first entry whose hash does not match. A log that was cut off at its end is detected only by comparison with a
 * head.
 */
import type { AuditHead } from './audit-entry.ts';
import type { AuditProblem, AuditVerdict } from './audit-verdict.ts';
import { canonicalize } from '../transport/canonical-json.ts';

/** Type of an imported key. The types of some runtimes have no name for it. */
type HmacKey = Awaited<ReturnType<typeof crypto.subtle.importKey>>;

interface Fault {
  seq: number;
  problem: AuditProblem;
  message: string;
}

/** An entry of any kind of log. */
interface ChainEntry {
  seq: number;
  event: string;
  hmac: string;
}

/** The properties in which kinds of logs differ. */
export interface ChainForm<E extends ChainEntry> {
  /** Returns the id of what the log is of. */
  subjectOf: (entry: E) => string;
  /** The fault of an entry with another subject. */
  otherSubject: AuditProblem;
  /** Prefix of the seed, before the subject. */
  seed: string;
  /** Returns the entry as it is hashed. */
  toHashed: (entry: E) => Record<string, unknown>;
  /** Returns the id of the secret that keys the entry. */
  keyIdOf: (entry: E) => string;
  /** Whether no entry can follow one of this event. */
  isLast: (event: string) => boolean;
}

export interface ChainCheck<E extends ChainEntry> {
  form: ChainForm<E>;
  /** Secrets by id. */
  secrets: ReadonlyMap<string, string>;
  head?: AuditHead | undefined;
  subject?: string | undefined;
}

/** Verifies a whole log, or a prefix of it. Rejects with `TypeError` when a secret is empty. */
export async function verifyChain<E extends ChainEntry>(
  entries: Iterable<E> | AsyncIterable<E>,
  check: ChainCheck<E>,
): Promise<AuditVerdict> {
  const keys = new Map<string, HmacKey>();
  for (const [id, secret] of check.secrets) keys.set(id, await importSecret(secret));
  const verifier = new Verifier(keys, check);
  // Each entry is checked together with the next one, which tells an inserted entry from an altered one.
  let current: E | undefined;
  for await (const next of entries) {
    if (current !== undefined) await verifier.take(current, next);
    current = next;
  }
  if (current !== undefined) await verifier.take(current, undefined);
  return verifier.finish();
}

class Verifier<E extends ChainEntry> {
  readonly #keys: ReadonlyMap<string, HmacKey>;
  readonly #form: ChainForm<E>;
  readonly #head: AuditHead | undefined;
  #subject: string | undefined;
  #previous = '';
  #good = 0;
  #hmacAtHead: string | null = null;
  #lastEvent = '';
  #fault: Fault | undefined;
  /** The `seq` of the entry that is missing where the chain breaks. If it comes later, the order was changed. */
  #sought: number | undefined;

  constructor(keys: ReadonlyMap<string, HmacKey>, { form, head, subject }: ChainCheck<E>) {
    this.#keys = keys;
    this.#form = form;
    this.#head = head;
    this.#subject = subject;
  }

  async take(entry: E, next: E | undefined): Promise<void> {
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
    const complete = this.#head !== undefined || this.#form.isLast(this.#lastEvent);
    return { valid: true, entries: this.#good, complete };
  }

  #begin(first: E): void {
    this.#subject ??= this.#form.subjectOf(first);
    if (this.#good === 0) this.#previous = `${this.#form.seed}${this.#subject}`;
  }

  async #findFault(entry: E, next: E | undefined): Promise<Fault | undefined> {
    const seq = this.#good + 1;
    const fault = (problem: AuditProblem, message: string): Fault => ({ seq, problem, message });
    const { otherSubject, subjectOf, keyIdOf } = this.#form;
    const subject = subjectOf(entry);
    if (subject !== this.#subject)
      return fault(otherSubject, `entry ${seq} belongs to ${subject}, not to ${this.#subject}`);
    if (entry.seq > seq) {
      this.#sought = seq;
      return fault('missing', `entry ${seq} is missing: entry ${entry.seq} is in its place`);
    }
    if (entry.seq < seq)
      return fault('inserted', `entry ${seq} is replaced by a second entry ${entry.seq} in its place`);
    if (!this.#keys.has(keyIdOf(entry)))
      return fault(
        'unknown_secret',
        `entry ${seq} is keyed by the secret ${keyIdOf(entry)}, which is not given`,
      );
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

  async #fits(entry: E): Promise<boolean> {
    const key = this.#keys.get(this.#form.keyIdOf(entry));
    if (key === undefined) return false;
    const text = canonicalize(this.#form.toHashed(entry));
    return entry.hmac === (await sign(key, `${this.#previous}\n${text}`));
  }
}

function reordered(seq: number, found: number): Fault {
  const message = `entry ${seq}: the order was changed, entry ${found} comes after its place`;
  return { seq, problem: 'reordered', message };
}

function importSecret(secret: string): Promise<HmacKey> {
  if (secret === '') throw new TypeError('the secret is empty');
  const algorithm = { name: 'HMAC', hash: 'SHA-256' };
  return crypto.subtle.importKey('raw', new TextEncoder().encode(secret), algorithm, false, ['sign']);
}

async function sign(key: HmacKey, text: string): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.sign('HMAC', key, new TextEncoder().encode(text)));
  return `sha256:${Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('')}`;
}
