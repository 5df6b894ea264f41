/** Opens the records of control: master key, database, lease, schema, and what is written in every transaction. */
import { join } from 'node:path';
import type pg from 'pg';
import type { Logger } from 'pino';
import { OrganizationAudit } from './audit/organization/organization-audit.ts';
import type { ControlConfig, ControlLimits } from './control-config.ts';
import { ChangeHints, type ChangeHintsOptions } from './db/change-hints.ts';
import { connectDatabase } from './db/connect-database.ts';
import { DatabaseHealth } from './db/database-health.ts';
import { DatabaseLease } from './db/database-lease.ts';
import { openDatabase, type Database, type PoolCounts } from './db/database.ts';
import { InstallationGuard } from './db/installation-guard.ts';
import type { Events } from './events/events.ts';
import { startEvents } from './events/start-events.ts';
import { ControlCount } from './ownership/control-count.ts';
import { ControlLease } from './ownership/control-lease.ts';
import { openNodeId } from './ownership/node-id.ts';
import { migrateDatabase } from './schema/migrate.ts';
import { MASTER_KEY_NAME, openMasterKeys } from './secrets/master-key.ts';
import { SecretBox } from './secrets/secret-box.ts';
import type { Clock } from './time/clock.ts';
import { startWebhooks, type StartedWebhooks } from './webhooks/start-webhooks.ts';
import type { Webhooks } from './webhooks/webhooks.ts';

export interface Storage {
  db: Database;
  events: Events;
  hints: ChangeHints;
  webhooks: Webhooks;
  /** Records that are deleted when they are old. */
  purged: readonly { purge: () => Promise<unknown> }[];
  lease: DatabaseLease;
  ownership: ControlLease;
  /** Throws while another control may be about to write the same records. */
  assertUsable: () => void;
  nodeId: string;
  /** How many controls are alive. */
  controls: Pick<ControlCount, 'now'>;
  databaseHealth: DatabaseHealth;
  secrets: SecretBox;
  organizationAudit: OrganizationAudit;
  masterKey: Buffer;
  pool: PoolCounts;
}

/** Opens the master key and the database, takes the lease, brings the schema up to date and numbers events. */
export async function openStorage(
  config: ControlConfig,
  { limits, clock, log }: { limits: ControlLimits; clock: Clock; log: Logger },
  stack: AsyncDisposableStack,
): Promise<Storage> {
  const { current: masterKey, older } = openMasterKeys(join(config.dataDir, MASTER_KEY_NAME));
  const connection = await connectDatabase(config, stack, log);
  const guard = new InstallationGuard(log);
  const patienceMs = limits.databasePatienceMs;
  const isShared = config.internalListen !== undefined;
  const lease = stack.use(await DatabaseLease.acquire({ connection, guard, log, patienceMs, isShared }));
  await migrateDatabase(connection, log, guard);
  const nodeId = openNodeId(config.dataDir);
  const { ownership, assertUsable } = await registerControl(
    config,
    { connection, lease, guard, nodeId, limits, log },
    stack,
  );
  let pool: PoolCounts = { totalCount: 0, idleCount: 0, waitingCount: 0 };
  const onPool = (opened: PoolCounts): void => void (pool = opened);
  const opened = openDatabase(connection, log, { assertUsable, guard, onPool });
  const db = stack.adopt(opened, (open) => open.destroy());
  const controls = isShared ? stack.use(await ControlCount.open({ db, log })) : { now: 1 };
  const databaseHealth = new DatabaseHealth({ connection, guard, log });
  const secrets = new SecretBox(masterKey, older);
  const organizationAudit = new OrganizationAudit(secrets);
  const running = { db, leadership: ownership, clock, log };
  const sending = startWebhooks({ ...running, secrets, organizationAudit, config, limits }, stack);
  const events = startEvents({ ...running, subscriber: sending.fanOut }, stack);
  const hints = openHints({ connection, guard, log }, { events, sending }, stack);
  const { webhooks } = sending;
  const purged = [events.store, sending.purged];
  const records = { db, events, hints, webhooks, organizationAudit };
  const own = { lease, ownership, assertUsable, controls, nodeId };
  return { ...records, ...own, purged, databaseHealth, secrets, masterKey, pool };
}

/** Other controls number events and make deliveries, too. */
function openHints(
  options: ChangeHintsOptions,
  { events, sending }: { events: Events; sending: StartedWebhooks },
  stack: AsyncDisposableStack,
): ChangeHints {
  const hints = stack.use(new ChangeHints(options));
  hints.on('events', () => events.sequencer.wake());
  hints.on('deliveries', () => sending.wake());
  hints.start();
  return hints;
}

interface RegisterBase {
  connection: pg.PoolConfig;
  lease: DatabaseLease;
  guard: InstallationGuard;
  nodeId: string;
  limits: ControlLimits;
  log: Logger;
}

/**
 * Registers this control. One that shares the database uses it only while its own lease is held: then no other control takes its
 * runners. The lease has connections of its own, on which it is renewed.
 */
async function registerControl(
  { version, internalListen }: ControlConfig,
  { connection, lease, guard, nodeId, limits, log }: RegisterBase,
  stack: AsyncDisposableStack,
): Promise<{ ownership: ControlLease; assertUsable: () => void }> {
  const assertUsable = (): void => lease.assertHeld();
  const db = stack.adopt(openDatabase(connection, log, { assertUsable, guard }), (open) => open.destroy());
  const isAlone = internalListen === undefined;
  const { controlLeaseMs: leaseMs } = limits;
  const ownership = stack.use(await ControlLease.register({ db, nodeId, version, leaseMs, isAlone, log }));
  if (isAlone) return { ownership, assertUsable };
  return {
    ownership,
    assertUsable: () => {
      lease.assertHeld();
      ownership.assertHeld();
    },
  };
}
