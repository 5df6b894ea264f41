/** Builds of two controls on one database: each leaves those of the other alone, and takes up those of one that is gone. */
import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { SERVICE_ACTOR } from '@coppice/contract';
import pino from 'pino';
import { OrganizationAudit } from '../audit/organization/organization-audit.ts';
import type { ImageBuildTable } from '../images/built-image-tables.ts';
import type { BuiltImages } from '../images/built-images.ts';
import type { Ownership } from '../ownership/ownership.ts';
import { newSandboxId } from '../sandbox/record/ids.ts';
import { SecretBox } from '../secrets/secret-box.ts';
import { waitFor } from '../testing/control-harness.ts';
import { insertSandbox } from '../testing/sandbox-row.ts';
import { startTwoLeases, type TwoLeases } from '../testing/controls/two-leases.ts';
import { BuildKeeper } from './build-keeper.ts';
import type { BuildSandboxes } from './build-sandboxes.ts';
import { BuildStore } from './build-store.ts';
import { ImageBuilds, newBuildId, type ImageBuildsParts } from './image-builds.ts';

const log = pino({ level: 'silent' });
const MAX_BUILDS = 2;

let controls: TwoLeases;
let store: BuildStore;
let destroyed: string[] = [];
beforeEach(async () => {
  controls = await startTwoLeases();
  store = new BuildStore(controls.db, new OrganizationAudit(new SecretBox(Buffer.alloc(32, 1))));
  destroyed = [];
});
afterEach(() => controls[Symbol.asyncDispose]());

function openKeeper(ownership: Ownership): BuildKeeper {
  const images = {
    settleBuild: () => Promise.resolve(),
    settleNoted: () => Promise.resolve(),
  } as unknown as BuiltImages;
  const sandboxes = {
    destroy: ({ sandbox_id: id }: ImageBuildTable) => Promise.resolve(void destroyed.push(id)),
  } as unknown as BuildSandboxes;
  return new BuildKeeper({ ownership, store, images, sandboxes, clock: { wallMs: Date.now }, log });
}

async function insert(control_id: string | null): Promise<ImageBuildTable> {
  const { organizationId: organization_id, teamId: team_id } = controls.owner;
  const of = { organization_id, team_id, team_only: false, name: 'built/app:1', base: 'node:22-slim' };
  const id = newBuildId();
  const row = { ...of, id, sandbox_id: newSandboxId(), steps: 1, created_at: Date.now(), control_id };
  const build = await store.insert(row, MAX_BUILDS);
  assert.ok(build);
  return build;
}

async function findState(id: string): Promise<string | undefined> {
  const reach = { organizationId: controls.owner.organizationId, onlyTeamId: null };
  return (await store.find(reach, id))?.state;
}

test('a control that starts leaves a build of another one alone, and ends it when that one is gone', async () => {
  const { id } = await insert(controls.first.id);
  await using keeper = openKeeper(controls.second);
  await keeper.start();
  assert.equal(await findState(id), 'running');
  await controls.killFirst();
  await using next = openKeeper(controls.second);
  await next.start();
  assert.equal(await findState(id), 'failed');
});

test('a build from before controls had names is ended', async () => {
  const { id } = await insert(null);
  await using keeper = openKeeper(controls.second);
  await keeper.start();
  assert.equal(await findState(id), 'failed');
});

test('after a build cleans only the control that owns the runner of its sandbox', async () => {
  const build = await insert(controls.first.id);
  const { sandbox_id: sandboxId, organization_id, team_id } = build;
  const runner_id = await controls.addRunner(controls.second);
  await insertSandbox(controls.db, { id: sandboxId, organization_id, team_id, runner_id });
  const end = { state: 'failed', error_code: 'internal', error_message: 'x' } as const;
  await store.end(build, { end, by: SERVICE_ACTOR, atMs: Date.now() });
  assert.deepEqual(await store.listUnclean(controls.second), [], 'its control has not ended');
  await controls.killFirst();
  const third = { id: 'ctl3', isLeading: true };
  assert.deepEqual(
    await store.listUnclean(third),
    [],
    'without the runner its sandbox could not be destroyed',
  );
  await using keeper = openKeeper(controls.second);
  await keeper.start();
  await waitFor('the build is cleaned', async () => (await store.listOpen()).size === 0);
  assert.deepEqual(destroyed, [sandboxId]);
});

test('the limit of builds holds for both controls together', async () => {
  await insert(controls.first.id);
  await insert(controls.second.id);
  await assert.rejects(insert(controls.second.id), assert.AssertionError);
});

test('a build is cancelled through the row that its control looks at', async () => {
  const { id } = await insert(controls.first.id);
  const other = await insert(controls.first.id);
  await store.cancel(id);
  assert.deepEqual(await store.listCancelled([id, other.id]), [id]);
});

/** The builds as callers of the second control see them, which runs none. */
function openSecond(): ImageBuilds {
  return new ImageBuilds({ ownership: controls.second, store, log } as unknown as ImageBuildsParts);
}

const reach = () => ({ organizationId: controls.owner.organizationId, onlyTeamId: null });

test('a caller at another control cancels a build, and is answered when it has ended', async () => {
  const build = await insert(controls.first.id);
  await using second = openSecond();
  const cancelling = second.cancel(reach(), build.id);
  await waitFor(
    'the first control sees it',
    async () => (await store.listCancelled([build.id])).length === 1,
  );
  await store.end(build, { end: { state: 'cancelled' }, by: SERVICE_ACTOR, atMs: Date.now() });
  assert.equal((await cancelling).status, 'cancelled');
});

test('a caller at another control follows a build to its end', async () => {
  const build = await insert(controls.first.id);
  await using second = openSecond();
  const types: string[] = [];
  const following = (async () => {
    const signal = AbortSignal.timeout(20_000);
    for await (const { type } of second.follow(reach(), build.id, { after: 0, signal })) types.push(type);
  })();
  await store.addEvents(build.id, [{ seq: 1, event: { type: 'note', text: 'begun' } }]);
  await waitFor('the first event', () => types.length === 1);
  await store.end(build, { end: { state: 'cancelled' }, by: SERVICE_ACTOR, atMs: Date.now() });
  await following;
  assert.deepEqual(types, ['note', 'end']);
});
