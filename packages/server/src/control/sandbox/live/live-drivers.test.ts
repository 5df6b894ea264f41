/** Drivers of hibernated sandboxes while their runner gets another owner. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import pino from 'pino';
import type { RunnerClient } from '../../placement/runner-client.ts';
import { OwnedRunner } from '../../runners/owned-runner.ts';
import { Runners } from '../../runners/runners.ts';
import { ManualClock } from '../../testing/manual-clock.ts';
import { buildSandboxRow } from '../../testing/sandbox-row.ts';
import type { SandboxRow } from '../record/sandbox-tables.ts';
import { LiveDrivers, type LiveDriversParts } from './live-drivers.ts';

interface Opened {
  drivers: LiveDrivers;
  runner: OwnedRunner;
  row: SandboxRow;
}

/** A runner with one hibernated sandbox in SQL. `beforeAdopt` is called when it is about to get a driver. */
function open(beforeAdopt: (runner: OwnedRunner) => void = () => undefined): Opened {
  const clock = new ManualClock();
  const runner = new OwnedRunner('runner-1', {} as RunnerClient, clock);
  const row = buildSandboxRow({ status: 'hibernated', runner_id: runner.id, timeout_s: 0 });
  const runners = new Runners();
  runners.add(runner);
  const parts: Partial<Record<keyof LiveDriversParts, unknown>> = {
    runners,
    clock,
    log: pino({ level: 'silent' }),
    limits: {},
    store: { countAlive: async () => 1, listHibernated: async () => [row.id], findById: async () => row },
    disks: { noteState: () => undefined },
    beforeAdopt: async () => beforeAdopt(runner),
    onState: () => undefined,
    onUnloaded: () => undefined,
  };
  return { drivers: new LiveDrivers(parts as unknown as LiveDriversParts), runner, row };
}

test('a hibernated sandbox gets one driver while its runner stays', async () => {
  const { drivers, runner, row } = open();
  const driver = await drivers.take(row);
  assert.equal(driver?.home, runner);
  assert.equal(await drivers.take(row), driver);
  await drivers.adoptMoved(runner.id);
  assert.deepEqual(drivers.list(), [driver]);
  drivers[Symbol.dispose]();
});

test('a runner that is about to get another owner gets no driver, neither for a request nor in a reconciliation', async () => {
  const { drivers, runner, row } = open();
  await drivers.take(row);
  runner.isLeaving = true;
  drivers.unload(runner.id);
  assert.equal(await drivers.take(row), undefined);
  await drivers.adoptMoved(runner.id);
  assert.deepEqual([drivers.list(), drivers.listAt(runner.id)], [[], []]);
});

test('a runner that begins to leave while its sandbox is adopted gets no driver', async () => {
  const { drivers, row } = open((runner) => (runner.isLeaving = true));
  assert.equal(await drivers.take(row), undefined);
  assert.deepEqual(drivers.list(), []);
});
