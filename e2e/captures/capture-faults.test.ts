/**
 * A process dies with SIGKILL at each named step of captures, forks, restores and resumes: the sandbox continues or its
 * record says why not, no partial result is ever visible, nothing is left, and a repeated request is served once.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Api, type Answer } from '../fixtures/api/api.ts';
import { BEGIN, type Attempt } from '../fixtures/captures/capture-attempts.ts';
import {
  CAPTURE_CASES,
  LAYER_STEPS,
  type CaptureCase,
  type CaptureVictim,
} from '../fixtures/captures/capture-cases.ts';
import { CountingGuest } from '../fixtures/captures/capture-guest.ts';
import { CloneApi } from '../fixtures/clones/clone-api.ts';
import { Holds } from '../fixtures/faults/holds.ts';
import {
  assertConsistent,
  takeInventory,
  withoutOrphans,
  type Inventory,
} from '../fixtures/host/inventory.ts';
import { attempt, groupByKill, insist, isPassing } from '../fixtures/faults/kill-groups.ts';
import { logEnd } from '../fixtures/service/log-end.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import type { Service } from '../fixtures/service/service.ts';
import { kill } from '../fixtures/faults/victims.ts';

const SETTLE_TIMEOUT_MS = 40_000;
/** The runner keeps a capture without a record for 30 s, and searches for such captures every 10 s. */
const ORPHANS_TIMEOUT_MS = 60_000;
/** Number of captures of a new sandbox until the layers of its disk are joined. */
const LAYERS_UNTIL_JOINED = 6;

interface Told {
  attempt: Attempt;
  /** The caller's answer after the death; undefined if the connection broke. */
  first: Answer | undefined;
}

describe('faults while sandboxes are captured and restored', { concurrency: false }, () => {
  const holds = new Holds();
  let service: Service;
  let api: Api;
  let clones: CloneApi;
  /** One for each case of a group. Guests that survive are used again. */
  let guests: CountingGuest[] = [];

  before(async () => {
    service = await startPrepared({ instance: 10, env: { COPPICE_FAULT_DIR: holds.directory } });
    api = new Api(service);
    clones = new CloneApi(api);
  });
  after(async () => {
    holds.releaseAll();
    await service?.[Symbol.asyncDispose]();
    holds[Symbol.dispose]();
  });

  /** Returns running guests; replaces lost ones. */
  const findGuests = async (count: number): Promise<CountingGuest[]> => {
    const areRunning = await Promise.all(guests.map((guest) => guest.isRunning()));
    guests = guests.filter((_, index) => areRunning[index]);
    while (guests.length < count) guests.push(await CountingGuest.create(api));
    return guests.slice(0, count);
  };

  const killQemus = async (pids: readonly number[]): Promise<void> => {
    assert.ok(pids.length > 0, 'there is no QEMU to kill');
    for (const pid of pids) process.kill(pid, 'SIGKILL');
    await service.waitFor('their end', 5000, () => pids.every((pid) => !service.vmPids().includes(pid)));
  };

  /** Kills the victim, and releases the holds meanwhile: a restarted role finds that the other has progressed. */
  const strike = async (
    victim: CaptureVictim,
    release: () => void,
    known: readonly number[],
  ): Promise<void> => {
    const pids = service.vmPids();
    if (victim === 'old QEMU') await killQemus(pids.filter((pid) => known.includes(pid)));
    else if (victim === 'new QEMU') await killQemus(pids.filter((pid) => !known.includes(pid)));
    else {
      const back = kill(victim, service);
      release();
      await back;
    }
    release();
  };

  const listVisible = async (): Promise<string[]> => {
    const { snapshots, captures } = await takeInventory(api);
    return [...snapshots, ...captures.map(({ id }) => id)];
  };

  /**
   * Starts the operations of a group, each held at its step, and kills the victim. Fails if a half-made capture is
   * visible.
   */
  const dieTogether = async (victim: CaptureVictim, group: readonly CaptureCase[]): Promise<Told[]> => {
    const attempts: Attempt[] = [];
    for (const [index, guest] of (await findGuests(group.length)).entries()) {
      const since = await guest.count();
      attempts.push(await BEGIN[group[index]!.operation]({ api, clones, guest, since, victim }));
    }
    const known = service.vmPids();
    using held = new DisposableStack();
    const asked: { attempt: Attempt; answer: Promise<Answer | undefined> }[] = [];
    for (const [index, { step }] of group.entries()) {
      const seen = await listVisible();
      const hold = held.use(holds.hold(step));
      asked.push({ attempt: attempts[index]!, answer: attempt(attempts[index]!.ask()) });
      await hold.reached();
      const half = (await listVisible()).filter((id) => !seen.includes(id));
      if (step.startsWith('capture.')) assert.deepEqual(half, []);
    }
    await strike(victim, () => held.dispose(), known);
    return Promise.all(
      asked.map(async ({ attempt: each, answer }) => ({ attempt: each, first: await answer })),
    );
  };

  // Control first: the next control removes leftovers after a grace period, and each new control restarts that period.
  for (const group of groupByKill(CAPTURE_CASES)) {
    const victim = group[0]!.victim;
    describe(`kill -9 of ${victim}`, () => {
      let told: Told[] = [];
      before(async () => {
        told = await dieTogether(victim, group);
      });

      for (const [index, { operation, step }] of group.entries()) {
        it(`during a ${operation} at ${step}: nothing is lost, half-made or left over`, async () => {
          const { attempt: begun, first } = told[index]!;
          const isLost = victim.endsWith('QEMU') && first?.status === 409;
          assert.ok(
            isPassing(first) || isLost || (first?.status ?? 0) < 300,
            `${first?.status} ${first?.text}\n${logEnd(service.output)}`,
          );
          if (isPassing(first)) await begun.verifyFailed?.();
          await begun.verify(await insist(service, SETTLE_TIMEOUT_MS, begun.ask));
          await assertConsistent(api, SETTLE_TIMEOUT_MS, withoutOrphans);
        });
      }
    });
  }

  for (const step of LAYER_STEPS) {
    it(`kill -9 of the runner at ${step}: joined layers are removed, and the disk is intact`, async () => {
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
      await strike('runner', () => hold.release(), []);

      assert.equal(layersOf(await assertConsistent(api, SETTLE_TIMEOUT_MS)).length, 1);
      assert.equal((await api.exec(own.id, sum)).stdout, written);
      saved.push(await clones.snapshot(own.id));
      for (const snapshotId of saved) await clones.deleteSnapshot(snapshotId);
      await own.destroy();
      await assertConsistent(api, SETTLE_TIMEOUT_MS);
    });
  }

  it('nothing is left when the last sandbox is destroyed', async () => {
    for (const guest of guests) if (await guest.isRunning()) await guest.destroy();
    const { units, captures } = await assertConsistent(api, ORPHANS_TIMEOUT_MS);
    assert.deepEqual({ units, captures }, { units: [], captures: [] });
  });
});
