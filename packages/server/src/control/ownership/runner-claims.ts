/** Which control owns a runner, in SQL. The row of the runner is locked meanwhile, so two never own it at a time. */
import { AppError } from '@coppice/contract';
import type { VmShape } from '../../lib/protocol/runner-protocol.ts';
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { DATABASE_NOW } from './database-time.ts';

export interface ClosedRunner {
  id: string;
  isDraining: boolean;
}

export interface FreeCapacity {
  memMiB: number;
  vcpus: number;
}

interface LocalRunner {
  id: string;
  region: string;
  nodeId: string;
}

export class RunnerClaims {
  readonly #db: Database;
  /** Id of this control. */
  readonly #control: string;

  constructor(db: Database, control: string) {
    this.#db = db;
    this.#control = control;
  }

  /** Returns the id of the runner on the machine of this control, if it has been connected before. */
  async findLocal(nodeId: string): Promise<string | undefined> {
    const row = await this.#db
      .selectFrom('runners')
      .select('id')
      .where('local_to', '=', nodeId)
      .executeTakeFirst();
    return row?.id;
  }

  /**
   * Takes the runner on the machine of this control, which may be new. It gets the sandboxes and snapshots from before
   * runners had ids, and those of an earlier runner of the machine, whose data was deleted. Throws `unavailable` if another
   * control owns it.
   */
  async takeLocal({ id, region, nodeId }: LocalRunner): Promise<void> {
    await this.#db.transaction().execute(async (transaction) => {
      const claims = new RunnerClaims(transaction, this.#control);
      const earlier = await claims.findLocal(nodeId);
      await claims.add(id, region);
      if ((await claims.claim(id)) === undefined)
        throw new AppError('unavailable', 'another control owns the runner of this machine');
      if (earlier === id) return;
      if (earlier !== undefined) await transaction.deleteFrom('runners').where('id', '=', earlier).execute();
      await transaction.updateTable('runners').set({ local_to: nodeId }).where('id', '=', id).execute();
      await handOver(transaction, earlier ?? null, id);
    });
  }

  /** Adds a runner that is new. */
  async add(id: string, region: string): Promise<void> {
    await this.#db
      .insertInto('runners')
      .values({ id, region, owner: null })
      .onConflict((conflict) => conflict.doNothing())
      .execute();
  }

  /** Returns which of this control's runners get no new VMs, and those that are being drained. */
  async listClosed(): Promise<ClosedRunner[]> {
    return this.#db
      .selectFrom('runners')
      .select(['id', sql<boolean>`coalesce(drain_until > ${DATABASE_NOW}, false)`.as('isDraining')])
      .where('owner', '=', this.#control)
      .where('cordoned_at', 'is not', null)
      .execute();
  }

  /** Tells the other controls what VMs may still take. */
  async noteFree(id: string, { memMiB, vcpus }: FreeCapacity): Promise<void> {
    await this.#db
      .updateTable('runners')
      .set({ mem_free_mib: memMiB, vcpus_free: vcpus })
      .where('id', '=', id)
      .where('owner', '=', this.#control)
      .execute();
  }

  /** Finds the runner of another control with the most room for a VM. Undefined if none has enough. */
  async findRoomElsewhere({ vcpus, mem_mib }: VmShape): Promise<string | undefined> {
    const row = await this.#db
      .selectFrom('runners')
      .innerJoin('controls', 'controls.id', 'runners.owner')
      .select('runners.id')
      .where('controls.id', '<>', this.#control)
      .where('controls.address', 'is not', null)
      .where('controls.is_fenced', '=', false)
      .where('controls.lease_until', '>', DATABASE_NOW)
      .where('cordoned_at', 'is', null)
      .where('mem_free_mib', '>=', mem_mib)
      .where('vcpus_free', '>=', vcpus)
      .orderBy('mem_free_mib', 'desc')
      .limit(1)
      .executeTakeFirst();
    return row?.id;
  }

  /**
   * Takes a runner that has no owner, or whose owner has not renewed its lease, and fences that owner. Returns the epoch
   * of the new owner; undefined if another control owns the runner.
   */
  async claim(id: string): Promise<number | undefined> {
    return inTransaction(this.#db, async (transaction) => {
      const runner = await transaction
        .selectFrom('runners')
        .select(['owner', 'epoch'])
        .where('id', '=', id)
        .forUpdate()
        .executeTakeFirst();
      if (runner === undefined) return undefined;
      if (runner.owner === this.#control) return runner.epoch;
      if (runner.owner !== null && !(await fence(transaction, runner.owner))) return undefined;
      const epoch = runner.epoch + 1;
      await transaction
        .updateTable('runners')
        .set({ owner: this.#control, epoch })
        .where('id', '=', id)
        .execute();
      return epoch;
    });
  }
}

/** Keeps a control whose lease is over from ever renewing it. Returns false if it still holds it. */
async function fence(db: Database, controlId: string): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('controls')
    .set({ is_fenced: true })
    .where('id', '=', controlId)
    .where(sql<boolean>`(is_fenced OR lease_until < ${DATABASE_NOW})`)
    .executeTakeFirst();
  return numUpdatedRows > 0n;
}

function inTransaction<T>(db: Database, work: (transaction: Database) => Promise<T>): Promise<T> {
  return db.isTransaction ? work(db) : db.transaction().execute(work);
}

/** Gives what a runner had to another one. Null: what no runner has. */
async function handOver(db: Database, from: string | null, to: string): Promise<void> {
  await sql`
    UPDATE sandboxes SET runner_id = ${to}
    WHERE runner_id IS NOT DISTINCT FROM ${from} AND status IN ('creating', 'running', 'hibernated')`.execute(
    db,
  );
  await sql`UPDATE snapshots SET runner_id = ${to} WHERE runner_id IS NOT DISTINCT FROM ${from}`.execute(db);
}
