import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { HostMoment } from '../../lib/host-clock.ts';
import type { OwnedRunner } from '../runners/owned-runner.ts';
import { buildSandboxRow } from '../testing/sandbox-row.ts';
import type { SandboxDriver } from './live/sandbox-driver.ts';
import { recordRound, type SeenRound } from './seen-round.ts';

const SEEN_AT: HostMoment = { bootId: 'this', bootMs: 2_000_000, wallMs: 1_700_001_000_000 };
const FREE = { memMiB: 1, vcpus: 1 };

function sandbox(id: string, status: 'running' | 'hibernated' = 'running'): SandboxDriver {
  const row = buildSandboxRow({ id, status });
  const live = { unrecordedUse: undefined, noteSeen: () => undefined };
  return { row, live } as unknown as SandboxDriver;
}

/** Returns the sandboxes whose rows got the moment, and that of the runner. */
async function record(
  round: Pick<SeenRound, 'before' | 'now'>,
  vms: string[],
): Promise<{ rows: readonly string[]; runner: HostMoment | undefined }> {
  let rows: readonly string[] = [];
  let moment: HostMoment | undefined;
  await recordRound(
    {
      runner: { id: 'runner1', free: FREE } as OwnedRunner,
      store: { recordUses: async () => undefined, recordSeen: async (ids) => void (rows = ids) },
      claims: { noteRound: async (_, { seenAt }) => void (moment = seenAt) },
    },
    { ...round, vms: new Set(vms), seenAt: SEEN_AT },
  );
  return { rows, runner: moment };
}

test('the runner gets the moment if it has the VMs of all sandboxes that run', async () => {
  const all = [sandbox('one'), sandbox('two'), sandbox('saved', 'hibernated')];
  assert.deepEqual(await record({ before: all, now: all }, ['one', 'two']), { rows: [], runner: SEEN_AT });
});

test('if one is missing, only the rows of the others get it', async () => {
  const all = [sandbox('one'), sandbox('two')];
  assert.deepEqual(await record({ before: all, now: all }, ['two']), { rows: ['two'], runner: undefined });
});

test('one that has begun since the VMs were listed keeps the moment back, which would also be its own', async () => {
  const [one, fresh] = [sandbox('one'), sandbox('fresh')];
  assert.deepEqual(await record({ before: [one], now: [one, fresh] }, ['one']), {
    rows: [],
    runner: undefined,
  });
});
