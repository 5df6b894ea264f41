import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import type { RunnerStatus } from '../../lib/protocol/runner-protocol.ts';
import type { RunnerClient } from '../placement/runner-client.ts';
import { ManualClock } from '../testing/manual-clock.ts';
import { OwnedRunner } from './owned-runner.ts';
import { Runners } from './runners.ts';

const SHAPE = { vcpus: 1, mem_mib: 100, disk_mib: 1 };
const LIMIT_MIB = 1000;

class Fleet {
  readonly runners = new Runners();
  /** Ids in the order in which they were asked. */
  readonly asked: string[] = [];
  readonly refusing = new Set<string>();

  add(id: string, promisedMiB: number, { isConnected = true } = {}): OwnedRunner {
    const admitVm = async (): Promise<Disposable> => {
      this.asked.push(id);
      if (this.refusing.has(id)) throw new AppError('capacity', `${id} is full`);
      return { [Symbol.dispose]: () => undefined };
    };
    const runner = new OwnedRunner(id, { admitVm } as unknown as RunnerClient, new ManualClock());
    runner.isConnected = isConnected;
    runner.noteStatus(report(promisedMiB));
    this.runners.add(runner);
    return runner;
  }

  async admit(): Promise<string> {
    return (await this.runners.admit('run1', SHAPE)).runner.id;
  }
}

function report(promisedMiB: number): RunnerStatus {
  const capacity = {
    mem_mib: { promised: promisedMiB, limit: LIMIT_MIB },
    vcpus: { promised: 0, limit: 32 },
    mem_available_mib: LIMIT_MIB,
    starts: { running: 0, waiting: 0 },
    disk: { free_mib: 4096, reserve_mib: 2048 },
  };
  return { capacity } as RunnerStatus;
}

test('the runner with the largest free share is asked first, and the next one when it refuses', async () => {
  const fleet = new Fleet();
  fleet.add('half', 500);
  fleet.add('empty', 0);
  fleet.add('away', 0, { isConnected: false });
  fleet.refusing.add('empty');
  assert.equal(await fleet.admit(), 'half');
  assert.deepEqual(fleet.asked, ['empty', 'half']);
});

test('admitted VMs count until the next report, so creates are spread', async () => {
  const fleet = new Fleet();
  const one = fleet.add('one', 0);
  fleet.add('other', 50);
  assert.deepEqual([await fleet.admit(), await fleet.admit()], ['one', 'other']);
  one.noteCapacity(report(0).capacity);
  assert.equal(await fleet.admit(), 'one');
});

test('of a thousand runners that are full only some are asked, those with room first', async () => {
  const fleet = new Fleet();
  for (let index = 0; index < 1000; index += 1) {
    fleet.refusing.add(`runner ${index}`);
    fleet.add(`runner ${index}`, index < 4 ? 800 : 950);
  }
  await assert.rejects(fleet.admit(), { code: 'capacity' });
  assert.equal(new Set(fleet.asked).size, fleet.asked.length);
  assert.deepEqual(fleet.asked.slice(0, 4).toSorted(), ['runner 0', 'runner 1', 'runner 2', 'runner 3']);
  assert.ok(fleet.asked.length < 15, `${fleet.asked.length} were asked`);
});

test('a runner that was full when it last reported is asked once no other has room', async () => {
  const fleet = new Fleet();
  fleet.add('full', 1000);
  fleet.add('refusing', 0);
  fleet.refusing.add('refusing');
  assert.equal(await fleet.admit(), 'full');
});

test('a runner that gets another owner is asked last, also after those without room', async () => {
  const fleet = new Fleet();
  fleet.add('leaving', 0).isLeaving = true;
  for (let index = 0; index < 100; index += 1) {
    fleet.refusing.add(`runner ${index}`);
    fleet.add(`runner ${index}`, 950);
  }
  fleet.add('away', 0, { isConnected: false });
  fleet.refusing.add('away');
  assert.equal(await fleet.admit(), 'leaving');
  assert.ok(fleet.asked.length <= 25, `${fleet.asked.length} were asked`);
  assert.ok(fleet.asked.includes('away'));
});
