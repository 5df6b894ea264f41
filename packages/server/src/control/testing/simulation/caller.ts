/** Sends the requests of callers to a simulated or real service, and writes their answers into the ledger. */
import type { SandboxRecord } from '@coppice/contract';
import type { Ledger } from './ledger.ts';
import { parseReply, type Reply } from './resting-service.ts';

/** Statuses that a fault may cause: temporarily, or because the sandbox is no longer in the required state. */
const BEARABLE = new Set([404, 409, 429, 502, 503, 504]);

export interface Request {
  method: string;
  path: string;
  body?: object;
  /** Idempotency-Key. */
  key?: string;
}

/** Sends a request. Resolves to undefined when no answer came. */
export type Ask = (request: Request) => Promise<Reply | undefined>;

/** Throws unless the API allows this answer. */
export function assertBearable({ method, path }: Request, { status, text }: Reply): void {
  if (status >= 300 && !BEARABLE.has(status)) throw new Error(`${method} ${path} answered ${status} ${text}`);
}

export class Caller {
  readonly #ask: Ask;
  readonly #ledger: Ledger;

  constructor(ask: Ask, ledger: Ledger) {
    this.#ask = ask;
    this.#ledger = ledger;
  }

  /** Returns the sandbox's id; undefined when the create must be repeated with the same key. */
  async create(body: object, key: string): Promise<string | undefined> {
    const path = '/v1/runs';
    const asked = performance.now();
    const reply = await this.#ask({ method: 'POST', path, body, key });
    if (reply?.status !== 201) {
      this.#ledger.noteAsked(key, { path, body, atMs: asked });
      return undefined;
    }
    return this.#noteNew(reply, this.#ledger.noteAnswered(key)?.atMs ?? asked);
  }

  async exec(id: string, command = 'true'): Promise<Reply | undefined> {
    const reply = await this.#post(`/v1/runs/${id}/exec`, { command });
    if (reply?.status === 200) this.#ledger.noteExec(id);
    return reply;
  }

  async startCommand(id: string): Promise<void> {
    await this.#post(`/v1/runs/${id}/commands`, { command: 'sleep infinity' });
  }

  async destroy(id: string): Promise<void> {
    this.#ledger.noteUncertain(id);
    const reply = await this.#ask({ method: 'DELETE', path: `/v1/runs/${id}` });
    if (reply?.status === 200) this.#ledger.noteDestroyed(id);
  }

  async snapshot(id: string): Promise<void> {
    const reply = await this.#post(`/v1/runs/${id}/snapshot`, {});
    if (reply?.status === 201) this.#ledger.snapshots.add((parseReply(reply) as { id: string }).id);
  }

  async deleteSnapshot(snapshotId: string): Promise<void> {
    this.#ledger.snapshots.delete(snapshotId);
    await this.#ask({ method: 'DELETE', path: `/v1/snapshots/${snapshotId}` });
  }

  async hibernate(id: string): Promise<void> {
    this.#ledger.noteUncertain(id);
    const reply = await this.#post(`/v1/runs/${id}/hibernate`);
    if (reply?.status === 200) this.#ledger.noteHibernated(id);
  }

  async resume(id: string, query = ''): Promise<void> {
    this.#ledger.noteUncertain(id);
    const reply = await this.#post(`/v1/runs/${id}/resume${query}`);
    if (reply?.status === 200) this.#ledger.noteRunning(id);
  }

  /** Returns the ids of the children in the answer. */
  async fork(id: string, count: number): Promise<string[]> {
    const asked = performance.now();
    const reply = await this.#post(`/v1/runs/${id}/fork`, { count });
    if (reply === undefined || reply.status >= 300) return [];
    const answered = parseReply(reply) as Partial<SandboxRecord>[];
    const children = answered.flatMap(({ id: child }) => child ?? []);
    for (const child of children) this.#ledger.noteRunning(child, asked);
    return children;
  }

  async restore(snapshotId: string): Promise<string | undefined> {
    const asked = performance.now();
    const reply = await this.#post('/v1/runs/restore', { snapshot_id: snapshotId });
    return reply?.status === 201 ? this.#noteNew(reply, asked) : undefined;
  }

  async rollBack(id: string, snapshotId: string): Promise<void> {
    const reply = await this.#post(`/v1/runs/${id}/rollback`, { snapshot_id: snapshotId });
    if (reply?.status === 200) this.#ledger.noteRollback(id);
  }

  async change(id: string, body: object): Promise<void> {
    await this.#ask({ method: 'PATCH', path: `/v1/runs/${id}`, body });
  }

  #post(path: string, body?: object): Promise<Reply | undefined> {
    return this.#ask({ method: 'POST', path, ...(body === undefined ? {} : { body }) });
  }

  #noteNew(reply: Reply, asked: number): string {
    const { id } = parseReply(reply) as SandboxRecord;
    this.#ledger.noteRunning(id, asked);
    return id;
  }
}
