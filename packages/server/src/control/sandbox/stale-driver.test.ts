/** Drivers that are left of a runner which this control has no more. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ElsewhereError } from '../placement/elsewhere.ts';
import type { RunnerClient } from '../placement/runner-client.ts';
import { OwnedRunner } from '../runners/owned-runner.ts';
import { Runners } from '../runners/runners.ts';
import { ManualClock } from '../testing/manual-clock.ts';
import { buildSandboxRow } from '../testing/sandbox-row.ts';
import { Sandboxes, type SandboxesParts } from './sandboxes.ts';

const REACH = { organizationId: 'org1', onlyTeamId: null };

test('a driver serves only while its control has the same runner, and that one stays', async () => {
  const make = (): OwnedRunner => new OwnedRunner('runner-1', {} as RunnerClient, new ManualClock());
  const home = make();
  const row = buildSandboxRow({ status: 'hibernated', runner_id: home.id });
  const driver = { row, home, record: row };
  const runners = new Runners();
  const parts: Partial<Record<keyof SandboxesParts, unknown>> = {
    runners,
    drivers: { findWithin: () => driver },
    store: { get: async () => row },
    left: { take: async () => undefined },
  };
  const sandboxes = new Sandboxes(parts as unknown as SandboxesParts);
  const find = () => sandboxes.getDriver(REACH, row.id);
  await assert.rejects(find, ElsewhereError);
  runners.add(home);
  assert.equal(await find(), driver);
  home.isLeaving = true;
  await assert.rejects(find, ElsewhereError);
  runners.add(make());
  await assert.rejects(find, ElsewhereError, 'it is another client of the runner');
});
