/**
 * `Idempotency-Key` on what creates a sandbox. The first request with a key does the work and its answer is kept for
 * 24 h; the same body gets that answer again, another body 422, a duplicate that comes meanwhile waits for the first.
 *
 * A key is written before the work and completed after it. One found incomplete with nobody at work belonged to a
 * control that was killed: the sandbox that it names tells whether there is an answer to give, or to begin again.
 * Errors that a retry may overcome are not kept.
 */
import { createHash } from 'node:crypto';
import { AppError, ERRORS, isErrorCode, type SandboxRecord } from '@coppice/contract';
import type { Logger } from 'pino';
import { z } from 'zod';
import type { Database } from '../db/database.ts';
import type { IdempotencyKeyTable } from '../db/tables.ts';

const KEPT_MS = 24 * 3_600_000;
const MAX_ROUNDS = 3;

export interface IdempotentRequest {
  organizationId: string;
  /** Method and path pattern, for example "POST /v1/runs". */
  route: string;
  key: string;
  /** The body as it was understood. */
  body: unknown;
  newSandboxId: () => string;
  create: (sandboxId: string) => Promise<SandboxRecord>;
  /** The sandbox's record now, or undefined when there is none. */
  find: (sandboxId: string) => Promise<SandboxRecord | undefined>;
}

export interface IdempotentAnswer {
  record: SandboxRecord;
  /** True when the answer is that of an earlier request. */
  isReplayed: boolean;
}

interface UnderWay {
  bodyHash: Buffer;
  answer: Promise<IdempotentAnswer>;
}

export class Idempotency {
  readonly #db: Database;
  readonly #log: Logger;
  readonly #underWay = new Map<string, UnderWay>();

  constructor(db: Database, log: Logger) {
    this.#db = db;
    this.#log = log;
  }

  /** The answer of the first request with this key, made now if this is the first. */
  run(request: IdempotentRequest): Promise<IdempotentAnswer> {
    const name = JSON.stringify([request.organizationId, request.route, request.key]);
    const bodyHash = hashBody(request.body);
    const first = this.#underWay.get(name);
    if (first !== undefined) return joinFirst(first, bodyHash);
    const answer = this.#findOrCreate(request, bodyHash).finally(() => this.#underWay.delete(name));
    this.#underWay.set(name, { bodyHash, answer });
    return answer;
  }

  /** Forgets keys that are too old to count. */
  async purge(): Promise<void> {
    await this.#db
      .deleteFrom('idempotency_keys')
      .where('created_at', '<', Date.now() - KEPT_MS)
      .execute();
  }

  async #findOrCreate(request: IdempotentRequest, bodyHash: Buffer): Promise<IdempotentAnswer> {
    for (let round = 0; round < MAX_ROUNDS; round += 1) {
      const sandboxId = request.newSandboxId();
      if (await this.#claim(request, bodyHash, sandboxId)) return this.#create(request, sandboxId);
      const replayed = await this.#replay(request, bodyHash);
      if (replayed !== undefined) return { record: replayed, isReplayed: true };
    }
    throw new AppError('unavailable', 'another request with this Idempotency-Key is under way; try again');
  }

  async #claim(request: IdempotentRequest, bodyHash: Buffer, sandboxId: string): Promise<boolean> {
    const made = await this.#db
      .insertInto('idempotency_keys')
      .values({
        organization_id: request.organizationId,
        route: request.route,
        key: request.key,
        body_sha256: bodyHash,
        sandbox_id: sandboxId,
        created_at: Date.now(),
        status_code: null,
        answer: null,
      })
      .onConflict((conflict) => conflict.doNothing())
      .executeTakeFirst();
    return made.numInsertedOrUpdatedRows === 1n;
  }

  async #create(request: IdempotentRequest, sandboxId: string): Promise<IdempotentAnswer> {
    let record: SandboxRecord;
    try {
      record = await request.create(sandboxId);
    } catch (error) {
      await this.#tolerate(this.#settleError(request, error));
      throw error;
    }
    await this.#tolerate(this.#complete(request, 201, JSON.stringify(record)));
    return { record, isReplayed: false };
  }

  async #settleError(request: IdempotentRequest, error: unknown): Promise<void> {
    if (error instanceof AppError && !ERRORS[error.code].retryable) {
      await this.#complete(
        request,
        error.status,
        JSON.stringify({ code: error.code, message: error.message }),
      );
    } else {
      await this.#forget(request);
    }
  }

  /** The work is done whether or not its key could be completed: a retry then finds it by its sandbox. */
  async #tolerate(writing: Promise<void>): Promise<void> {
    try {
      await writing;
    } catch (error) {
      this.#log.warn({ err: error }, 'an Idempotency-Key is left incomplete');
    }
  }

  /** Undefined when the key is free again. Throws the error that was the answer. */
  async #replay(request: IdempotentRequest, bodyHash: Buffer): Promise<SandboxRecord | undefined> {
    const row = await this.#find(request);
    if (row === undefined) return undefined;
    if (row.created_at < Date.now() - KEPT_MS) {
      await this.#forget(request);
      return undefined;
    }
    if (!row.body_sha256.equals(bodyHash)) throw otherBody();
    if (row.status_code !== null && row.answer !== null) return readAnswer(row.status_code, row.answer);
    return this.#takeOver(request, row.sandbox_id);
  }

  async #takeOver(request: IdempotentRequest, sandboxId: string): Promise<SandboxRecord | undefined> {
    const record = await request.find(sandboxId);
    if (record?.status === 'creating') {
      throw new AppError(
        'unavailable',
        'the first request with this Idempotency-Key is being resolved; try again',
      );
    }
    if (record === undefined || record.status === 'failed') {
      await this.#forget(request);
      return undefined;
    }
    await this.#complete(request, 201, JSON.stringify(record));
    return record;
  }

  #find(request: IdempotentRequest): Promise<IdempotencyKeyTable | undefined> {
    return this.#db
      .selectFrom('idempotency_keys')
      .selectAll()
      .where('organization_id', '=', request.organizationId)
      .where('route', '=', request.route)
      .where('key', '=', request.key)
      .executeTakeFirst();
  }

  async #complete(request: IdempotentRequest, statusCode: number, answer: string): Promise<void> {
    await this.#db
      .updateTable('idempotency_keys')
      .set({ status_code: statusCode, answer })
      .where('organization_id', '=', request.organizationId)
      .where('route', '=', request.route)
      .where('key', '=', request.key)
      .execute();
  }

  async #forget(request: IdempotentRequest): Promise<void> {
    await this.#db
      .deleteFrom('idempotency_keys')
      .where('organization_id', '=', request.organizationId)
      .where('route', '=', request.route)
      .where('key', '=', request.key)
      .execute();
  }
}

async function joinFirst(first: UnderWay, bodyHash: Buffer): Promise<IdempotentAnswer> {
  if (!first.bodyHash.equals(bodyHash)) throw otherBody();
  return { record: (await first.answer).record, isReplayed: true };
}

function otherBody(): AppError {
  return new AppError(
    'idempotency_mismatch',
    'this Idempotency-Key was used with another body; use a new key',
  );
}

const StoredError = z.object({ code: z.string(), message: z.string() });

function readAnswer(statusCode: number, answer: string): SandboxRecord {
  const body: unknown = JSON.parse(answer);
  if (statusCode < 400) return body as SandboxRecord;
  const { code, message } = StoredError.parse(body);
  throw new AppError(isErrorCode(code) ? code : 'internal', message);
}

/** Equal for bodies that differ only in spaces and in the order of their fields. */
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
