/** Most of a guest's memory, and both of its processors, after every kind of clone. */
import assert from 'node:assert/strict';
import { BASE_IMAGE } from '../../packages/server/src/lib/base-image.ts';
import { cloneCheck, describeClones, everyone, forEach } from '../fixtures/clones/clone-check.ts';
import type { CloneGuest } from '../fixtures/clones/clone-guest.ts';
import { shared } from '../fixtures/service/shared.ts';
import { IS_LONG } from '../fixtures/test-size.ts';

const [FILLED_MIB, MEM_MIB] = IS_LONG ? [800, 1024] : [380, 512];
const PAGES = FILLED_MIB * 256;
const MIN_ROUNDS = 5;

interface Hash {
  hash: string;
  pages: number;
  /** Numbers of pages whose contents differ from the written ones. */
  wrong: number[];
}

const hash = (guest: CloneGuest): Promise<Hash> => guest.memory('/hash');

/** Returns how many rounds of work each processor has done. Both work until a request for `/burn?state=off`. */
const readRounds = (guest: CloneGuest): Promise<[number, number]> => guest.memory('/burn');

async function waitForRounds(guest: CloneGuest): Promise<void> {
  const from = await readRounds(guest);
  await guest.waitFor('work of both processors', async () => {
    const now = await readRounds(guest);
    return now.every((rounds, index) => rounds >= from[index]! + MIN_ROUNDS) ? true : undefined;
  });
}

const processors = cloneCheck<[number, number]>({
  name: 'both processors, busy at the capture, continue in every clone',
  before: async (parent) => {
    await parent.memory('/burn?state=on');
    await waitForRounds(parent);
    return readRounds(parent);
  },
  verify: async (family, before) => {
    // One after the other: this host has fewer processors than all clones together.
    for (const guest of everyone(family)) {
      const now = await readRounds(guest);
      assert.ok(
        now.every((rounds, index) => rounds >= before[index]!),
        `${now.join(' ')} after ${before.join(' ')}`,
      );
      await waitForRounds(guest);
      assert.equal(await guest.read('nproc'), '2');
      await guest.memory('/burn?state=off');
    }
  },
});

/** Hash of the memory. The guest writes the memory once and never again. */
let written: Hash | undefined;

const memory = cloneCheck({
  name: `${FILLED_MIB} of ${MEM_MIB} MiB are unchanged`,
  install: async (parent) => {
    await parent.startMemory(FILLED_MIB);
    written = await hash(parent);
    assert.deepEqual([written.pages, written.wrong], [PAGES, []]);
  },
  verify: async (family) => {
    for (const now of await forEach(everyone(family), hash)) assert.deepEqual(now, written);
  },
});

describeClones({
  title: 'memory and processors of a clone',
  api: async () => (await shared()).api,
  shape: () => Promise.resolve({ image: BASE_IMAGE, mem_mib: MEM_MIB, vcpus: 2 }),
  install: (parent) => parent.installProbe(),
  siblings: 1,
  shortKinds: ['fork', 'resume'],
  // Processors first: they are busy until that check ends.
  checks: [processors, memory],
});
