/** Two controls, each with a runner of its own machine: an image from steps is at the runner that built it. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { TwoControls } from '../testing/controls/two-controls.ts';

let both: TwoControls;
before(async () => {
  both = await TwoControls.start({ runnerOutageDeadlineMs: 300 });
});
after(() => both[Symbol.asyncDispose]());

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
