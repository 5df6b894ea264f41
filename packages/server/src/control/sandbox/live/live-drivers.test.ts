/** Counts the sandboxes that the lists of one organization read: only its own. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import pino from 'pino';
import type { SandboxRow } from '../record/sandbox-tables.ts';
import { momentOf } from '../../time/clock.ts';
import { ManualClock } from '../../testing/manual-clock.ts';
import { buildSandboxRow } from '../../testing/sandbox-row.ts';
import { LiveDrivers, type LiveDriversParts } from './live-drivers.ts';
import { LIVE_STATES } from '../record/live-list.ts';
import { Sandboxes, type SandboxesParts } from '../sandboxes.ts';

const OWN = 5;
const OTHERS = 3000;
/** Returns a row that calls `look` when it is read. */
function watched(row: SandboxRow, look: (id: string) => void): SandboxRow {
  return new Proxy(row, {
    get(target, name, receiver) {
      look(target.id);
      return Reflect.get(target, name, receiver) as unknown;
    },
  });
}

function rowOf(organizationId: string, index: number): SandboxRow {
  return buildSandboxRow({
    id: `run-${organizationId}-${index}`,
    organization_id: organizationId,
    timeout_s: 0,
  });
}

/** Builds only the parts that loading and lists use. */
function buildParts(rows: readonly SandboxRow[]): LiveDriversParts {
  const parts: Partial<Record<keyof LiveDriversParts, unknown>> = {
    store: { listAlive: async () => rows, forgetResumes: async () => undefined },
    runners: {
      get: () => ({ id: 'runner-1', client: {}, presence: { now: () => momentOf(new ManualClock()) } }),
    },
    clock: new ManualClock(),
    log: pino({ level: 'silent' }),
    limits: {},
    egressKeeper: { mark: () => undefined },
    disks: { noteState: () => undefined, findDetaching: () => undefined },
    onState: () => undefined,
  };
  return parts as unknown as LiveDriversParts;
}

/** Builds sandboxes that list live sandboxes from the drivers alone. */
function buildSandboxes(drivers: LiveDrivers): Sandboxes {
  const parts: Partial<SandboxesParts> = { drivers };
  return new Sandboxes(parts as SandboxesParts);
}

test('the lists of one organization read no sandboxes of others', async () => {
  let looked = new Set<string>();
  const rows = [
    ...Array.from({ length: OTHERS }, (_, index) => rowOf(`other${index % 3}`, index)),
    ...Array.from({ length: OWN }, (_, index) => rowOf('own', index)),
  ].map((row) => watched(row, (id) => looked.add(id)));
  using drivers = new LiveDrivers(buildParts(rows));
  await drivers.load('runner-1');
  assert.equal(looked.size, OTHERS + OWN);

  looked = new Set();
  const reach = { organizationId: 'own', onlyTeamId: null };
  const filter = { reach, statuses: LIVE_STATES, labels: {}, limit: 100 };
  const { records } = await buildSandboxes(drivers).list(filter);
  assert.equal(records.length, OWN);
  assert.equal(looked.size, OWN);
});
