/**
 * `Idempotency-Key` for requests that must not be carried out twice. The first request with a key does the work, and
 * its answer is kept for 24 h. Later requests get that answer if their body is the same, and 422 if it is another. A
 * duplicate that arrives during the first request waits for it.
 *
 * A key is written before the work, with the id of its subject (a sandbox, a fork, a snapshot, a rollback) and of the
 * control that does it, and completed after it. If a key is incomplete and no request works on it, its control was killed,
 * or the outcome was unknown. The state of the subject then decides whether there is an answer, or whether the work begins
 * again. Errors that a retry may overcome are not kept. A duplicate at another control waits, too: it looks again and again.
 */
import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { AppError, ERRORS, isErrorCode } from '@coppice/contract';
import type { Logger } from 'pino';
import { z } from 'zod';
import type { Database } from '../db/database.ts';
import { isControlAlive } from '../ownership/live-controls.ts';
import type { IdempotencyKeyTable } from './record/sandbox-tables.ts';

const KEPT_MS = 24 * 3_600_000;
/** For how long a duplicate waits for the first request at another control. */
const MAX_WAIT_MS = 20_000;
const LOOK_AGAIN_MS = 250;

/** An answer as it is kept and replayed. */
export interface KeptAnswer<T> {
  status: number;
  body: T;
}

/** Outcome of the work on a subject. `begun`: not known yet, as interrupted work is still being resolved. */
export type Subject<T> = 'nothing' | 'begun' | KeptAnswer<T>;

export interface IdempotentRequest<T> {
  organizationId: string;
  /** Method and path, for example "POST /v1/runs", and the team of a key that is limited to it. */
  route: string;
  key: string;
  /** The parsed body. */
  body: unknown;
  newSubjectId: () => string;
  create: (subjectId: string) => Promise<KeptAnswer<T>>;
  find: (subjectId: string) => Promise<Subject<T>>;
}

export interface IdempotentAnswer<T> extends KeptAnswer<T> {
  /** True when the answer is that of an earlier request. */
  isReplayed: boolean;
}

type Key = Pick<IdempotentRequest<unknown>, 'organizationId' | 'route' | 'key'>;
/** Key and subject: another control may have taken the key meanwhile, for another subject. */
type OwnKey = Key & { subjectId: string };

interface UnderWay {
  bodyHash: Buffer;
  answer: Promise<IdempotentAnswer<unknown>>;
}

export class Idempotency {
  readonly #db: Database;
  /** Id of this control. */
  readonly #control: string;
  readonly #log: Logger;
  readonly #underWay = new Map<string, UnderWay>();

  constructor(db: Database, control: string, log: Logger) {
    this.#db = db;
    this.#control = control;
    this.#log = log;
  }

  /** Returns the answer of the first request with this key. Carries the request out if it is the first. */
  run<T>(request: IdempotentRequest<T>): Promise<IdempotentAnswer<T>> {
    const name = JSON.stringify([request.organizationId, request.route, request.key]);
    const bodyHash = hashBody(request.body);
    const first = this.#underWay.get(name);
    if (first !== undefined) return joinFirst<T>(first, bodyHash);
    const answer = this.#findOrCreate(request, bodyHash).finally(() => this.#underWay.delete(name));
    this.#underWay.set(name, { bodyHash, answer });
    return answer;
  }

  /** Deletes keys that are older than 24 h. */
  async purge(): Promise<void> {
    await this.#db
      .deleteFrom('idempotency_keys')
      .where('created_at', '<', Date.now() - KEPT_MS)
      .execute();
  }

  async #findOrCreate<T>(request: IdempotentRequest<T>, bodyHash: Buffer): Promise<IdempotentAnswer<T>> {
    const end = performance.now() + MAX_WAIT_MS;
    for (;;) {
      const subjectId = request.newSubjectId();
      if (await this.#claim(request, bodyHash, subjectId)) return this.#create(request, subjectId);
      const replayed = await this.#replay(request, bodyHash);
      if (replayed === 'elsewhere' && performance.now() > end)
        throw new AppError(
          'unavailable',
          'another request with this Idempotency-Key is under way; try again',
        );
      if (replayed === 'elsewhere') await delay(LOOK_AGAIN_MS);
      else if (replayed !== 'free') return { ...replayed, isReplayed: true };
    }
  }

  async #claim(request: Key, bodyHash: Buffer, subjectId: string): Promise<boolean> {
    const made = await this.#db
      .insertInto('idempotency_keys')
      .values({
        organization_id: request.organizationId,
        route: request.route,
        key: request.key,
        body_sha256: bodyHash,
        subject_id: subjectId,
        control_id: this.#control,
        created_at: Date.now(),
        status_code: null,
        answer: null,
      })
      .onConflict((conflict) => conflict.doNothing())
      .executeTakeFirst();
    return made.numInsertedOrUpdatedRows === 1n;
  }

  async #create<T>(request: IdempotentRequest<T>, subjectId: string): Promise<IdempotentAnswer<T>> {
    let answer: KeptAnswer<T>;
    try {
      answer = await request.create(subjectId);
    } catch (error) {
      await this.#tolerate(this.#settleError({ ...request, subjectId }, error));
      throw error;
    }
    await this.#tolerate(this.#complete({ ...request, subjectId }, answer));
    return { ...answer, isReplayed: false };
  }

  async #settleError(request: OwnKey, error: unknown): Promise<void> {
    if (error instanceof AppError && error.code === 'outcome_unknown') return;
    if (error instanceof AppError && !ERRORS[error.code].retryable) {
      const { status, code, message } = error;
      await this.#complete(request, { status, body: { code, message } });
    } else {
      await this.#forget(request);
    }
  }

  /** Logs a failure to write the key. The work is done all the same: a retry finds it by its subject. */
  async #tolerate(writing: Promise<void>): Promise<void> {
    try {
      await writing;
    } catch (error) {
      this.#log.warn({ err: error }, 'an Idempotency-Key is left incomplete');
    }
  }

  /** Returns `free` if the key is free again, `elsewhere` while another control works on it. Throws an answer that was an error. */
  async #replay<T>(
    request: IdempotentRequest<T>,
    bodyHash: Buffer,
  ): Promise<KeptAnswer<T> | 'free' | 'elsewhere'> {
    const row = await this.#find(request);
    if (row === undefined) return 'free';
    if (row.created_at < Date.now() - KEPT_MS) {
      await this.#forget({ ...request, subjectId: row.subject_id });
      return 'free';
    }
    if (!row.body_sha256.equals(bodyHash)) throw otherBody();
    if (row.status_code !== null && row.answer !== null) return readAnswer(row.status_code, row.answer);
    const { control_id: control } = row;
    const isElsewhere =
      control !== null && control !== this.#control && (await isControlAlive(this.#db, control));
    return isElsewhere ? 'elsewhere' : this.#takeOver(request, row.subject_id);
  }

  async #takeOver<T>(request: IdempotentRequest<T>, subjectId: string): Promise<KeptAnswer<T> | 'free'> {
    const subject = await request.find(subjectId);
    if (subject === 'begun') {
      throw new AppError(
        'unavailable',
        'the first request with this Idempotency-Key is being resolved; try again',
      );
    }
    if (subject === 'nothing') {
      await this.#forget({ ...request, subjectId });
      return 'free';
    }
    await this.#complete({ ...request, subjectId }, subject);
    return subject;
  }

  #find(request: Key): Promise<IdempotencyKeyTable | undefined> {
    return this.#db
      .selectFrom('idempotency_keys')
      .selectAll()
      .where('organization_id', '=', request.organizationId)
      .where('route', '=', request.route)
      .where('key', '=', request.key)
      .executeTakeFirst();
  }

  async #complete(request: OwnKey, { status, body }: KeptAnswer<unknown>): Promise<void> {
    await this.#db
      .updateTable('idempotency_keys')
      .set({ status_code: status, answer: JSON.stringify(body) })
      .where('organization_id', '=', request.organizationId)
      .where('route', '=', request.route)
      .where('key', '=', request.key)
      .where('subject_id', '=', request.subjectId)
      .execute();
  }

  async #forget(request: OwnKey): Promise<void> {
    await this.#db
      .deleteFrom('idempotency_keys')
      .where('organization_id', '=', request.organizationId)
      .where('route', '=', request.route)
      .where('key', '=', request.key)
      .where('subject_id', '=', request.subjectId)
      .execute();
  }
}

/** Requests with the same key and route have answers of the same type. */
async function joinFirst<T>(first: UnderWay, bodyHash: Buffer): Promise<IdempotentAnswer<T>> {
  if (!first.bodyHash.equals(bodyHash)) throw otherBody();
  const { status, body } = await first.answer;
  return { status, body: body as T, isReplayed: true };
}

function otherBody(): AppError {
  return new AppError(
    'idempotency_mismatch',
    'this Idempotency-Key was used with another body; use a new key',
  );
}

const StoredError = z.object({ code: z.string(), message: z.string() });

function readAnswer<T>(status: number, answer: string): KeptAnswer<T> {
  const body: unknown = JSON.parse(answer);
  if (status < 400) return { status, body: body as T };
  const { code, message } = StoredError.parse(body);
  throw new AppError(isErrorCode(code) ? code : 'internal', message);
}

/** Hashes a body. Bodies that differ only in spaces and in the order of their fields have the same hash. */
function hashBody(body: unknown): Buffer {
  return createHash('sha256')
    .update(JSON.stringify(sortKeys(body)))
    .digest();
}

function sortKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortKeys);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).map(([name, member]) => [name, sortKeys(member)] as const);
  return Object.fromEntries(entries.toSorted(([a], [b]) => (a < b ? -1 : 1)));
}
