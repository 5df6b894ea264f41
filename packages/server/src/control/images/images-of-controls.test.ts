/** Two controls, each with a runner of its own machine: an image from steps is at the runner that built it. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { PROTOCOL_VERSIONS } from '../../lib/protocol/wire-headers.ts';
import { waitFor } from '../testing/control-harness.ts';
import { TwoControls } from '../testing/controls/two-controls.ts';

let both: TwoControls;
before(async () => {
  both = await TwoControls.start({ runnerOutageDeadlineMs: 300 });
});
after(() => both[Symbol.asyncDispose]());

test('an image in the object store is used at any runner that fetches it; one of an earlier version does not', async () => {
  const { one, other } = both;
  const body = { name: 'stored:1', from: 'node:22-slim', steps: [{ env: { A: 'stored' } }] };
  const build = await other.call('POST', '/v1/images/build', { body });
  assert.equal(build.body.status, 'done', JSON.stringify(build.body));
  await using db = one.openDatabase();
  const image = await db
    .selectFrom('built_images')
    .selectAll()
    .where('name', '=', 'built/stored:1')
    .executeTakeFirstOrThrow();
  assert.equal(image.runner_id, other.runner.id);
  const { digest: capture_id, organization_id, runner_id } = image;
  assert.ok(runner_id !== null);
  const row = { capture_id, organization_id, runner_id, created_at: 1, stored_at: 2 };
  await db.insertInto('capture_objects').values(row).execute();
  const listed = await one.call('GET', '/v1/images');
  assert.ok(listed.body.some((each: { image: string }) => each.image === `built/stored:1@${capture_id}`));

  const create = async (): Promise<string> => {
    const made = await one.call('POST', '/v1/runs', { body: { image: 'built/stored:1' } });
    assert.equal(made.status, 201, JSON.stringify(made.body));
    return String(made.body.id);
  };
  assert.ok(one.runner.vms.has(await create()));
  one.runner.protocol = { oldest: 1, newest: 1 };
  await waitFor('the version to be known', async () => other.runner.vms.has(await create()));
  one.runner.protocol = PROTOCOL_VERSIONS;
});

test('an image is used through any control, where it was built, and its runner is named when it is away', async () => {
  const { one, other } = both;
  const body = { name: 'app:1', from: 'node:22-slim', steps: [{ env: { A: 'x' } }] };
  const build = await other.call('POST', '/v1/images/build', { body });
  assert.equal(build.body.status, 'done', JSON.stringify(build.body));
  const image = { image: 'built/app:1' };
  const made = await one.call('POST', '/v1/runs', { body: image });
  assert.equal(made.status, 201, JSON.stringify(made.body));
  assert.ok(other.runner.vms.has(made.body.id));
  const next = await one.call('POST', '/v1/images/build', {
    body: { ...body, name: 'app:2', from: 'built/app:1', steps: [{ env: { B: 'y' } }] },
  });
  // Its outcome does not count: the VMs of the fake runner have another image.
  assert.ok(other.runner.requests.includes(`PUT /vms/${next.body.run_id}`), JSON.stringify(next.body));
  await other.stopControl();
  await other.runner.stop();
  const refused = await one.call('POST', '/v1/runs', { body: image });
  assert.deepEqual([refused.status, refused.body.error.code], [503, 'unavailable']);
  assert.match(
    refused.body.error.message,
    new RegExp(`only at the runner ${other.runner.id}.*build the image again`, 'u'),
  );
});
