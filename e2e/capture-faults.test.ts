/**
 * Somebody dies with SIGKILL at each named step of what saves sandboxes and brings them back: the sandbox runs on or its
 * record says why not, nothing half is ever shown, nothing is left, and a caller who asks again is served once.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Api, type Answer } from './fixtures/api.ts';
import { BEGIN, type Attempt } from './fixtures/capture-attempts.ts';
import {
  CAPTURE_CASES,
  CAPTURE_VICTIMS,
  LAYER_STEPS,
  type CaptureCase,
  type CaptureVictim,
} from './fixtures/capture-cases.ts';
import { CountingGuest } from './fixtures/capture-guest.ts';
import { CloneApi } from './fixtures/clone-api.ts';
import { Holds, type Hold } from './fixtures/holds.ts';
import { assertConsistent, takeInventory, withoutOrphans, type Inventory } from './fixtures/inventory.ts';
import { logEnd } from './fixtures/log-end.ts';
import { Service } from './fixtures/service.ts';
import { kill } from './fixtures/victims.ts';

const SETTLE_TIMEOUT_MS = 40_000;
/** A capture that no record names is left alone for 30 s, and looked for every 10 s. */
const ORPHANS_TIMEOUT_MS = 60_000;
/** Captures of a new sandbox until the layers of its disk are joined. */
const LAYERS_UNTIL_JOINED = 6;
/** What a caller may be told by a service of which a part has just died: all of it worth another try. */
const PASSING = new Set([502, 503, 504]);

describe('faults while sandboxes are saved and brought back', { concurrency: false }, () => {
  const holds = new Holds();
  let service: Service;
  let api: Api;
  let clones: CloneApi;
  let guest: CountingGuest | undefined;

  before(async () => {
    service = await Service.start({ instance: 10, env: { COPPICE_FAULT_DIR: holds.directory } });
    api = new Api(service);
    clones = new CloneApi(api);
  });
  after(async () => {
    holds.releaseAll();
    await service?.[Symbol.asyncDispose]();
    holds[Symbol.dispose]();
  });

  const attempt = (work: Promise<Answer>): Promise<Answer | undefined> => work.catch(() => undefined);

  /** As a client that does not give up; a broken connection is worth another try as well. */
  const insist = async (call: () => Promise<Answer>): Promise<Answer> => {
    let answer: Answer | undefined;
    await service.waitFor('an answer that lasts', SETTLE_TIMEOUT_MS, async () => {
      answer = await attempt(call());
      return answer !== undefined && !PASSING.has(answer.status);
    });
    assert.ok(answer);
    return answer;
  };

  /** One that was lost is replaced. */
  const findGuest = async (): Promise<CountingGuest> => {
    if (guest === undefined || !(await guest.isRunning())) guest = await CountingGuest.create(api);
    return guest;
  };

  const killQemus = async (pids: readonly number[]): Promise<void> => {
    assert.ok(pids.length > 0, 'there is no QEMU to kill');
    for (const pid of pids) process.kill(pid, 'SIGKILL');
    await service.waitFor('their end', 5000, () => pids.every((pid) => !service.vmPids().includes(pid)));
  };

  /** A role that is started again finds what the other one has done meanwhile. */
  const strike = async (victim: CaptureVictim, hold: Hold, known: readonly number[]): Promise<void> => {
    const pids = service.vmPids();
    if (victim === 'old QEMU') await killQemus(pids.filter((pid) => known.includes(pid)));
    else if (victim === 'new QEMU') await killQemus(pids.filter((pid) => !known.includes(pid)));
    else {
      const back = kill(victim, service);
      hold.release();
      await back;
    }
    hold.release();
  };

  const listVisible = async (): Promise<string[]> => {
    const { snapshots, captures } = await takeInventory(api);
    return [...snapshots, ...captures.map(({ id }) => id)];
  };

  const dieAt = async ({ step, victim }: CaptureCase, { ask }: Attempt): Promise<Answer | undefined> => {
    const known = service.vmPids();
    const seen = await listVisible();
    using hold = holds.hold(step);
    const first = attempt(ask());
    await hold.reached();
    const half = (await listVisible()).filter((id) => !seen.includes(id));
    if (step.startsWith('capture.')) assert.deepEqual(half, []);
    await strike(victim, hold, known);
    return first;
  };

  // Control first: what it leaves to the next one is removed after a grace, which begins anew with each of them.
  for (const victim of CAPTURE_VICTIMS) {
    describe(`kill -9 of ${victim}`, () => {
      for (const fault of CAPTURE_CASES.filter((one) => one.victim === victim)) {
        const { operation, step } = fault;
        it(`during a ${operation} at ${step}: nothing is lost, half there, or left`, async () => {
          const guest = await findGuest();
          const since = await guest.count();
          const begun = await BEGIN[operation]({ api, clones, guest, since, victim });
          const first = await dieAt(fault, begun);
          const isAway = first === undefined || PASSING.has(first.status);
          const isLost = victim.endsWith('QEMU') && first?.status === 409;
          assert.ok(
            isAway || isLost || first.status < 300,
            `${first?.status} ${first?.text}\n${logEnd(service.output)}`,
          );
          if (isAway) await begun.verifyFailed?.();
          await begun.verify(await insist(begun.ask));
          await assertConsistent(api, SETTLE_TIMEOUT_MS, withoutOrphans);
        });
      }
    });
  }

  for (const step of LAYER_STEPS) {
    it(`kill -9 of the runner at ${step}: joined layers are gone, and the disk is whole`, async () => {
      const own = await CountingGuest.create(api);
      const layersOf = ({ units, overlays }: Inventory): string[] => {
        const unit = units.find(({ id }) => id === own.id)?.unit;
        return overlays.filter((name) => name.startsWith(`${unit}/`));
      };
      const write = 'head -c 1M /dev/urandom > /root/random; sync';
      const sum = 'echo 3 > /proc/sys/vm/drop_caches; sha256sum < /root/random';
      const written = (await api.exec(own.id, `${write}; ${sum}`)).stdout;

      using hold = holds.hold(step);
      const saved: string[] = [];
      for (let layer = 0; layer < LAYERS_UNTIL_JOINED; layer += 1) saved.push(await clones.snapshot(own.id));
      await hold.reached();
      assert.equal(layersOf(await takeInventory(api)).length, LAYERS_UNTIL_JOINED + 1);
      await strike('runner', hold, []);

      assert.equal(layersOf(await assertConsistent(api, SETTLE_TIMEOUT_MS)).length, 1);
      assert.equal((await api.exec(own.id, sum)).stdout, written);
      saved.push(await clones.snapshot(own.id));
      for (const snapshotId of saved) await clones.deleteSnapshot(snapshotId);
      await own.destroy();
      await assertConsistent(api, SETTLE_TIMEOUT_MS);
    });
  }

  it('all is gone when the last sandbox is destroyed', async () => {
    if (guest !== undefined && (await guest.isRunning())) await guest.destroy();
    const { units, captures } = await assertConsistent(api, ORPHANS_TIMEOUT_MS);
    assert.deepEqual({ units, captures }, { units: [], captures: [] });
  });
});
