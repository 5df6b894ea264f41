import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import type { PreparedImage } from '../../lib/protocol/runner-protocol.ts';
import type { RunnerClient } from '../placement/runner-client.ts';
import { reportStatus } from '../testing/fakes/fake-status.ts';
import { FakeRunner } from '../testing/fakes/fake-runner.ts';
import { ManualClock } from '../testing/manual-clock.ts';
import { LocalImages, nameOf } from './local-images.ts';
import { OwnedRunner } from './owned-runner.ts';
import { Runners } from './runners.ts';

const DIGEST = `sha256:${'a'.repeat(64)}`;
const NODE = `docker.io/library/node:22-slim@${DIGEST}`;
const SHAPE = { vcpus: 1, mem_mib: 1024, disk_mib: 1024 };
const GIB = 1024;

const prepared = (change: Partial<PreparedImage> = {}): PreparedImage => ({
  image: NODE,
  digest: DIGEST,
  size_bytes: 1,
  prepared_at: '2026-01-01T00:00:00.000Z',
  status: 'ready',
  shapes: [{ vcpus: 1, mem_mib: 1024, disk_mib: 1024, max_disk_mib: 2048 }],
  ...change,
});

/** A connected runner with this much memory for VMs, in GiB. */
function addRunner(runners: Runners, id: string, memGiB = 40): OwnedRunner {
  const fake = new FakeRunner('/nonexistent');
  fake.id = id;
  fake.maxMemMib = memGiB * GIB;
  let leftMiB = memGiB * GIB;
  const admitVm: RunnerClient['admitVm'] = async (_, { mem_mib }) => {
    if (leftMiB < mem_mib) throw new AppError('capacity', 'no memory');
    leftMiB -= mem_mib;
    return { [Symbol.dispose]: () => undefined };
  };
  const runner = new OwnedRunner(id, { admitVm } as unknown as RunnerClient, new ManualClock());
  runner.isConnected = true;
  runner.noteStatus(reportStatus(fake) as never);
  runners.add(runner);
  return runner;
}

/** Places VMs one after the other. Returns how many each runner got, in the order of the ids. */
async function place(runners: Runners, count: number, image?: string): Promise<number[]> {
  const got = new Map(runners.list().map(({ id }) => [id, 0]));
  for (let index = 0; index < count; index += 1) {
    const wanted = { ...SHAPE, ...(image === undefined ? {} : { image }) };
    const { runner } = await runners.admit(`run${index}`, wanted);
    got.set(runner.id, (got.get(runner.id) ?? 0) + 1);
    // As after a create: the image is there from then on.
    if (image !== undefined) runner.images.note(NODE, SHAPE);
  }
  return [...got.values()];
}

test('without an image that is local, VMs are spread by free share', async () => {
  const runners = new Runners();
  for (const id of ['a', 'b']) addRunner(runners, id);
  addRunner(runners, 'c', 20);
  assert.deepEqual(await place(runners, 10), [4, 4, 2]);
});

test('a runner that has the template comes first, then one that has the image', async () => {
  const runners = new Runners();
  for (const id of ['a', 'b']) addRunner(runners, id);
  const [image, template] = ['c', 'd'].map((id) => addRunner(runners, id));
  image?.images.report([prepared({ shapes: [] })]);
  template?.images.report([prepared()]);
  const admit = async (): Promise<string> =>
    (await runners.admit('run1', { ...SHAPE, image: 'node:22-slim' })).runner.id;
  assert.equal(await admit(), 'd');
  if (template !== undefined) template.isCordoned = true;
  assert.equal(await admit(), 'c');
});

test('a popular image fills one runner only until others have a quarter more room', async () => {
  const runners = new Runners();
  addRunner(runners, 'a').images.report([prepared()]);
  for (const id of ['b', 'c']) addRunner(runners, id);
  assert.deepEqual(await place(runners, 10, 'node:22-slim'), [10, 0, 0]);
  const all = [10, 0, 0];
  for (let index = 0; index < 90; index += 1) {
    const [more] = [await place(runners, 1, 'node:22-slim')];
    for (const [at, count] of more.entries()) all[at] = (all[at] ?? 0) + count;
    // A quarter of 40 GiB, and one VM.
    assert.ok(Math.max(...all) - Math.min(...all) <= 11, String(all));
  }
  assert.ok(Math.max(...all) - Math.min(...all) <= 1, String(all));
});

test('a full runner is passed over, although it has the image', async () => {
  const runners = new Runners();
  addRunner(runners, 'a', 1).images.report([prepared()]);
  addRunner(runners, 'b', 1);
  assert.deepEqual(await place(runners, 2, 'node:22-slim'), [1, 1]);
  await assert.rejects(runners.admit('run9', SHAPE), { code: 'capacity' });
});

test('of many runners the one that has the image is asked first, but not before one with a quarter more room', async () => {
  const runners = new Runners();
  for (let index = 0; index < 100; index += 1) addRunner(runners, `runner ${index}`);
  const local = addRunner(runners, 'local');
  local.images.report([prepared()]);
  const admit = async (): Promise<string> =>
    (await runners.admit('run1', { ...SHAPE, image: 'node:22-slim' })).runner.id;
  for (let index = 0; index < 10; index += 1) assert.equal(await admit(), 'local');
  assert.notEqual(await admit(), 'local');
  local.isLeaving = true;
  assert.notEqual(await admit(), 'local');
});

test('images are known by tag and by digest, until the runner reports that they are gone', () => {
  const images = new LocalImages();
  const rate = (image: string, size: typeof SHAPE): string => images.rate(nameOf(image), size);
  assert.equal(rate('node:22-slim', SHAPE), 'none');
  images.report([prepared()]);
  for (const image of ['node:22-slim', 'docker.io/library/node:22-slim', `node@${DIGEST}`])
    assert.equal(rate(image, SHAPE), 'template', image);
  assert.equal(rate('node:22-slim', { ...SHAPE, mem_mib: 2048 }), 'image');
  assert.equal(rate('node:20-slim', SHAPE), 'none');
  // Two tags of one image: a report names only one of them.
  images.note(`docker.io/library/node:22@${DIGEST}`, { ...SHAPE, mem_mib: 2048 });
  assert.equal(rate('node:22', { ...SHAPE, mem_mib: 2048 }), 'template');
  images.report([prepared(), prepared({ image: 'no reference:::', digest: 'sha256:b' })]);
  assert.equal(rate('node:22', SHAPE), 'template');
  images.report([]);
  assert.equal(rate('node:22-slim', SHAPE), 'none');
});
