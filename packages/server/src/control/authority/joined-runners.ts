/**
 * The runners of the installation in SQL: how one joins, which there are, and how one is revoked for good.
 *
 *     (no row) ── token ─► joined ── revoke ─► revoked
 *                            └── token for this runner ─► joined, with a new key
 *
 * A runner that was killed after its row was written and before it has stored the answer joins again with another token.
 */
import { AppError } from '@coppice/contract';
import { sql } from 'kysely';
import { RunnerMetrics } from '../../lib/protocol/metrics-protocol.ts';
import type { Database } from '../db/database.ts';
import { DATABASE_NOW } from '../ownership/database-time.ts';
import { isAliveSql } from '../ownership/live-controls.ts';
import { RunnerClaims } from '../ownership/runner-claims.ts';
import type { FoundToken } from './join-tokens.ts';

/** A runner that has proved its key. */
export interface ProvedRunner {
  id: string;
  region: string;
  /** `host:port` */
  address: string;
  fingerprint: string;
}

export interface ListedRunner {
  id: string;
  region: string;
  owner: string | null;
  epoch: number;
  address: string | null;
  /** Unix milliseconds. */
  joinedAt: number | null;
  revokedAt: number | null;
  /** Since then it gets no new sandboxes. */
  cordonedAt: number | null;
  /** Its sandboxes that are creating or running, according to SQL. */
  vms: number;
  /** Whether a control that is alive owns it. */
  isOwned: boolean;
  isDraining: boolean;
  /** Since its owner last compared it with the records; null before the first time. */
  heardAgoMs: number | null;
  /** Its measurements of then; undefined if they are not known, or of another version. */
  report: RunnerMetrics | undefined;
}

/** Throws unless a token of this kind may admit the runner. The statement of {@link admitRunner} decides. */
export async function assertAdmissible(
  db: Database,
  { id, fingerprint }: Pick<ProvedRunner, 'id' | 'fingerprint'>,
  token: FoundToken,
): Promise<void> {
  if (token.runnerId !== null && token.runnerId !== id)
    throw new AppError(
      'unauthorized',
      `the token is for ${token.runnerId}, and this runner is ${id}: make one with "coppice admin runner token"`,
    );
  const known = await db
    .selectFrom('runners')
    .select(['revoked_at', 'fingerprint'])
    .where('id', '=', id)
    .executeTakeFirst();
  if (known === undefined) return;
  if (known.revoked_at !== null)
    throw new AppError(
      'invalid_state',
      `the runner ${id} is revoked for good: to use the machine as a new runner, delete the runner's data directory on it`,
    );
  if (known.fingerprint !== fingerprint && token.runnerId === null)
    throw new AppError(
      'already_exists',
      `there is a runner ${id} with another key: if it is this machine, join with a token of "coppice admin runner token ` +
        `--runner ${id}"; if its data directory is a copy, delete that directory first`,
    );
}

/**
 * Uses the token up and adds the runner, or changes its address and key. A new key gets a new epoch and no owner: control
 * connects anew. Returns when it joined, in Unix milliseconds. Throws `unauthorized` if the token was used meanwhile.
 */
export async function admitRunner(
  db: Database,
  { id, region, address, fingerprint }: ProvedRunner,
  token: FoundToken,
): Promise<number> {
  const mayReplace = token.runnerId === id;
  return db.transaction().execute(async (transaction) => {
    const { rows } = await sql<{ is_used: boolean; joined_at: number | null }>`
      WITH used AS (
        UPDATE join_tokens SET used_at = ${DATABASE_NOW}, used_by = ${id}
        WHERE secret_hash = ${token.secretHash} AND used_at IS NULL AND expires_at > ${DATABASE_NOW}
        RETURNING secret_hash),
      joined AS (
        INSERT INTO runners (id, region, owner, address, fingerprint, joined_at)
        SELECT ${id}, ${region}, NULL, ${address}, ${fingerprint}, ${DATABASE_NOW} FROM used
        ON CONFLICT (id) DO UPDATE SET
          address = excluded.address, fingerprint = excluded.fingerprint, joined_at = excluded.joined_at,
          epoch = runners.epoch + CASE WHEN runners.fingerprint = excluded.fingerprint THEN 0 ELSE 1 END,
          owner = CASE WHEN runners.fingerprint = excluded.fingerprint THEN runners.owner END
        WHERE runners.revoked_at IS NULL AND (runners.fingerprint = excluded.fingerprint OR ${mayReplace})
        RETURNING joined_at)
      SELECT EXISTS (SELECT FROM used) AS is_used, (SELECT joined_at FROM joined) AS joined_at`.execute(
      transaction,
    );
    const [row] = rows;
    if (row?.is_used !== true)
      throw new AppError(
        'unauthorized',
        'the token has just been used or has expired: make a new one with "coppice admin runner token"',
      );
    // The transaction ends without the use of the token.
    if (row.joined_at === null)
      throw new AppError('invalid_state', `the runner ${id} was changed at the same time: try again`);
    return row.joined_at;
  });
}

const VMS = sql<number>`(
  SELECT count(*) FROM sandboxes
  WHERE runner_id = runners.id AND status IN ('creating', 'running'))`;

/** Lists the runners, the earliest to join first. */
export async function listRunners(db: Database): Promise<ListedRunner[]> {
  const rows = await db
    .selectFrom('runners')
    .select(['id', 'region', 'owner', 'epoch', 'address', 'joined_at as joinedAt', 'revoked_at as revokedAt'])
    .select(['cordoned_at as cordonedAt', VMS.as('vms'), 'report', isAliveSql('owner').as('isOwned')])
    .select(sql<number | null>`${DATABASE_NOW} - heard_at`.as('heardAgoMs'))
    .select(sql<boolean>`coalesce(drain_until > ${DATABASE_NOW}, false)`.as('isDraining'))
    .orderBy(sql`joined_at NULLS FIRST`)
    .orderBy('id')
    .execute();
  return rows.map(({ report, ...row }) =>
    Object.assign(row, { report: RunnerMetrics.safeParse(report).data }),
  );
}

/**
 * Revokes a runner for good: it has no owner, and a higher epoch than every control that is still connected with it. Repeated,
 * it changes nothing. Throws `not_found`, and `invalid_state` for the runner of a control's own machine while that control is
 * alive: it alone reaches the runner, and so can end its VMs.
 */
export async function revokeRunner(db: Database, id: string): Promise<void> {
  const fenced = await new RunnerClaims(db, '').fenceFormer(id);
  const { numUpdatedRows } = await db
    .updateTable('runners')
    .set({ revoked_at: DATABASE_NOW, owner: null, epoch: sql<number>`epoch + 1` })
    .where('id', '=', id)
    .where('revoked_at', 'is', null)
    .where((row) =>
      row.or([row('address', 'is not', null), row('owner', 'is', null), row('owner', '=', fenced ?? null)]),
    )
    .executeTakeFirst();
  if (numUpdatedRows > 0n) return;
  const known = await db.selectFrom('runners').select('revoked_at').where('id', '=', id).executeTakeFirst();
  if (known === undefined)
    throw new AppError('not_found', `there is no runner "${id}"; coppice admin runner list shows them`);
  if (known.revoked_at === null)
    throw new AppError(
      'invalid_state',
      `the runner ${id} has not joined over the network: it is that of a control's own machine, which uses it; ` +
        'stop that control first, and wait 15 s if it was killed',
    );
}
