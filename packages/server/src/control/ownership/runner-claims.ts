/** Which control owns a runner, in SQL. One statement takes it, so two never own it at a time. */
import type { HostMoment } from '../../lib/host-clock.ts';
import type { Accelerator, VmShape } from '../../lib/protocol/runner-protocol.ts';
import { sql } from 'kysely';
import type { RunnerMetrics } from '../../lib/protocol/metrics-protocol.ts';
import type { Database } from '../db/database.ts';
import { IS_LIVE_CONTROL } from './live-controls.ts';
import { DATABASE_NOW } from './database-time.ts';
import { IS_ANSWERING, takingUntil } from './owners.ts';
import { settleSeen } from './seen-runner.ts';

export interface JoinedRunner {
  id: string;
  /** `host:port` */
  address: string;
  /** SHA-256 of its certificate. */
  fingerprint: string;
  /** Whether no other control that is alive owns it. */
  isFree: boolean;
}

export interface ClosedRunner {
  id: string;
  isDraining: boolean;
}

export interface FreeCapacity {
  memMiB: number;
  vcpus: number;
}

/** A runner of another control. */
export interface RunnerElsewhere {
  id: string;
  accelerator: Accelerator;
}

interface LocalRunner {
  isAlone: boolean;
  id: string;
  /** The highest epoch that the runner knows; undefined if it does not answer. */
  seen?: number | undefined;
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
   * Takes the runner on the machine of this control, which may be new. It gets what is of no runner, from before runners had
   * ids, and what was of an earlier runner of the machine, whose data was deleted. For a control that `isAlone` that is every other
   * runner without an address: after a restore on another machine, the one of the former machine. Returns `joined` for a runner
   * that all controls reach by its address, and `elsewhere` if another control owns it.
   */
  async takeLocal({
    id,
    seen,
    region,
    nodeId,
    isAlone,
  }: LocalRunner): Promise<'taken' | 'joined' | 'elsewhere'> {
    return this.#db.transaction().execute(async (transaction) => {
      const claims = new RunnerClaims(transaction, this.#control);
      await claims.add(id, region);
      const { address } = await transaction
        .selectFrom('runners')
        .select('address')
        .where('id', '=', id)
        .executeTakeFirstOrThrow();
      if (address !== null && !isAlone) return 'joined';
      if ((await claims.claim(id, seen)) === undefined) return 'elsewhere';
      const earlier = await transaction
        .selectFrom('runners')
        .select('id')
        .where('id', '<>', id)
        .where('address', 'is', null)
        .$if(!isAlone, (query) => query.where('local_to', '=', nodeId))
        .execute();
      for (const from of [null, ...earlier.map((runner) => runner.id)]) await handOver(transaction, from, id);
      for (const runner of earlier)
        await transaction.deleteFrom('runners').where('id', '=', runner.id).execute();
      await transaction.updateTable('runners').set({ local_to: nodeId }).where('id', '=', id).execute();
      return 'taken';
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

  /** Lists the runners of other machines that have joined and are not revoked. */
  async listJoined(): Promise<JoinedRunner[]> {
    const rows = await this.#db
      .selectFrom('runners')
      .leftJoin('controls', 'controls.id', 'runners.owner')
      .select(['runners.id', 'runners.address', 'fingerprint', this.#isFree.as('isFree')])
      .where('revoked_at', 'is', null)
      .where('runners.address', 'is not', null)
      .orderBy('runners.id')
      .execute();
    return rows.flatMap(({ address, fingerprint, ...row }) =>
      address === null || fingerprint === null ? [] : [{ ...row, address, fingerprint }],
    );
  }

  /** Lists the revoked runners that sandboxes, snapshots or images still name. */
  async listLeft(): Promise<string[]> {
    const { rows } = await sql<{ id: string }>`
      SELECT id FROM runners WHERE revoked_at IS NOT NULL AND (
        EXISTS (SELECT FROM snapshots WHERE runner_id = runners.id)
        OR EXISTS (SELECT FROM built_images WHERE runner_id = runners.id) OR EXISTS (
          SELECT FROM sandboxes
          WHERE runner_id = runners.id AND status IN ('creating', 'running', 'hibernated')))`.execute(
      this.#db,
    );
    return rows.map((row) => row.id);
  }

  /** Has requests sent to this control: it has the sandboxes of the runner. */
  async noteTaken(id: string): Promise<void> {
    await this.#db
      .updateTable('runners')
      .set({ taking_until: null })
      .where('id', '=', id)
      .where('owner', '=', this.#control)
      .where('taking_until', 'is not', null)
      .execute();
  }

  /** Gives what a revoked runner has left to another one. */
  async inherit(from: string, heir: string): Promise<void> {
    await this.#db.transaction().execute((transaction) => handOver(transaction, from, heir));
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

  /**
   * Tells the other controls that the runner has answered, what VMs may still take, and when it was seen with all VMs that it
   * should have.
   */
  async noteRound(
    id: string,
    { free: { memMiB, vcpus }, seenAt }: { free: FreeCapacity; seenAt: HostMoment | undefined },
  ): Promise<void> {
    await this.#db
      .updateTable('runners')
      .set({ mem_free_mib: memMiB, vcpus_free: vcpus, heard_at: DATABASE_NOW })
      .$if(seenAt !== undefined, (query) =>
        query.set({
          seen_at: seenAt?.wallMs ?? null,
          seen_boot_id: seenAt?.bootId ?? null,
          seen_boot_ms: seenAt?.bootMs ?? null,
        }),
      )
      .where('id', '=', id)
      .where('owner', '=', this.#control)
      .execute();
  }

  /** Tells the other controls what the runner has measured. */
  async noteReport(id: string, report: RunnerMetrics): Promise<void> {
    await this.#db
      .updateTable('runners')
      .set({ report: sql`${JSON.stringify(report)}::jsonb` })
      .where('id', '=', id)
      .where('owner', '=', this.#control)
      .execute();
  }

  /** Finds a runner of another control that answers, and to which requests can be forwarded: the one with the most room. */
  async findAnsweringElsewhere(): Promise<RunnerElsewhere | undefined> {
    const row = await this.#roomiestElsewhere()
      .select(sql<string | null>`report ->> 'accelerator'`.as('accelerator'))
      .where('report', 'is not', null)
      .executeTakeFirst();
    if (row === undefined) return undefined;
    return { id: row.id, accelerator: row.accelerator === 'kvm' ? 'kvm' : 'tcg' };
  }

  /** Returns whether a control that is alive owns the runner. */
  async isOwned(id: string): Promise<boolean> {
    const row = await this.#db
      .selectFrom('runners')
      .innerJoin('controls', 'controls.id', 'runners.owner')
      .select('runners.id')
      .where('runners.id', '=', id)
      .where(IS_LIVE_CONTROL)
      .executeTakeFirst();
    return row !== undefined;
  }

  /** Finds the runner of another control that answers, with the most room for a VM. Undefined if none has enough. */
  async findRoomElsewhere({ vcpus, mem_mib }: VmShape): Promise<string | undefined> {
    const row = await this.#roomiestElsewhere()
      .where('cordoned_at', 'is', null)
      .where('mem_free_mib', '>=', mem_mib)
      .where('vcpus_free', '>=', vcpus)
      .executeTakeFirst();
    return row?.id;
  }

  /**
   * Takes a runner that has no owner, or whose owner has not renewed its lease, and fences that owner. Returns the epoch
   * of the new owner; undefined if another control owns the runner, or if it is revoked.
   *
   * The epoch is above `seen`, the highest that the runner knows: after a restore of the database it knows more than SQL.
   */
  async claim(id: string, seen = 0): Promise<number | undefined> {
    const fenced = await this.fenceFormer(id);
    const { rows } = await sql<{ epoch: number }>`
      UPDATE runners SET owner = ${this.#control}, epoch = greatest(epoch, ${seen}::bigint) + 1,
        taking_until = CASE WHEN owner = ${this.#control} THEN taking_until ELSE ${takingUntil()} END
      WHERE id = ${id} AND revoked_at IS NULL
        AND (owner IS NULL OR owner = ${fenced ?? null} OR (owner = ${this.#control} AND epoch < ${seen}::bigint))
      RETURNING epoch`.execute(this.#db);
    return rows[0]?.epoch ?? (await this.#findOwn(id));
  }

  /**
   * Fences the owner of a runner if its lease is over, and returns its id. It is fenced for good, so the runner may be taken
   * from it in a later statement. One statement for both would lock the two rows in the opposite order of a control that
   * gives its runners up, and PostgreSQL cannot check such a statement again after the wait for a lock.
   */
  async fenceFormer(id: string): Promise<string | undefined> {
    const { rows } = await sql<{ id: string }>`
      UPDATE controls SET is_fenced = true
      WHERE id = (SELECT owner FROM runners WHERE runners.id = ${id}) AND id <> ${this.#control}
        AND (is_fenced OR lease_until < ${DATABASE_NOW})
      RETURNING id`.execute(this.#db);
    return rows[0]?.id;
  }

  /** Of the runners of other controls that answer and are reached through them, the one with the most free memory. */
  #roomiestElsewhere() {
    return this.#db
      .selectFrom('runners')
      .innerJoin('controls', 'controls.id', 'runners.owner')
      .select('runners.id')
      .where('controls.id', '<>', this.#control)
      .where('controls.address', 'is not', null)
      .where(IS_LIVE_CONTROL)
      .where('revoked_at', 'is', null)
      .where(IS_ANSWERING)
      .orderBy('mem_free_mib', 'desc')
      .limit(1);
  }

  get #isFree() {
    return sql<boolean>`(
      controls.id IS NULL OR controls.id = ${this.#control} OR controls.is_fenced
      OR controls.lease_until < ${DATABASE_NOW})`;
  }

  /** Returns the epoch of a runner that this control owns already. */
  async #findOwn(id: string): Promise<number | undefined> {
    const row = await this.#db
      .selectFrom('runners')
      .select('epoch')
      .where('id', '=', id)
      .where('owner', '=', this.#control)
      .executeTakeFirst();
    return row?.epoch;
  }
}

/**
 * Gives what a runner had to another one, except built images, and snapshots that any runner can fetch. Ended sandboxes, too, if
 * something of them is to be cleaned up there. Null: what no runner has.
 */
async function handOver(db: Database, from: string | null, to: string): Promise<void> {
  if (from !== null) await settleSeen(db, from);
  await sql`
    UPDATE sandboxes SET runner_id = ${to}, version = version + 1, is_resuming = false
    WHERE runner_id IS NOT DISTINCT FROM ${from} AND status IN ('creating', 'running', 'hibernated')`.execute(
    db,
  );
  await sql`
    UPDATE sandboxes SET runner_id = ${to}
    WHERE runner_id IS NOT DISTINCT FROM ${from} AND (
      id IN (SELECT sandbox_id FROM disks WHERE sandbox_id IS NOT NULL)
      OR id IN (SELECT sandbox_id FROM image_builds WHERE NOT cleaned))`.execute(db);
  // The files are at no runner until one is found that has them.
  if (from !== null)
    await sql`UPDATE built_images SET runner_id = NULL WHERE runner_id = ${from}`.execute(db);
  await sql`
    UPDATE snapshots SET runner_id = CASE WHEN ${IS_STORED} THEN NULL ELSE ${to} END
    WHERE runner_id IS NOT DISTINCT FROM ${from}`.execute(db);
}

/** Whether a finished snapshot is in the object store. */
const IS_STORED = sql<boolean>`(status = 'ready' AND EXISTS (
  SELECT FROM capture_objects WHERE capture_id = snapshots.id AND stored_at IS NOT NULL))`;
