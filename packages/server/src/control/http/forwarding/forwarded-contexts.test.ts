/** Files of builds that another control has than the one that is asked. */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { waitFor, type Answer, type ControlHarness } from '../../testing/control-harness.ts';
import { TwoControls } from '../../testing/controls/two-controls.ts';
import { layOutTar } from '../../testing/tar-of-files.ts';

const BUILD = '/v1/images/build';
const CONTEXTS = '/v1/images/contexts';
const FROM = 'node:22-slim';

let both: TwoControls;
before(async () => {
  both = await TwoControls.start();
});
after(() => both[Symbol.asyncDispose]());

async function upload(harness: ControlHarness, content = 'x'): Promise<string> {
  const raw = layOutTar([{ path: 'a', content }]);
  const { status, body } = await harness.call('POST', CONTEXTS, { raw });
  assert.equal(status, 201, JSON.stringify(body));
  return body.id;
}

const bodyOf = (context: string, more: Record<string, unknown> = {}) => ({
  from: FROM,
  name: 'app:1',
  steps: [{ copy: { from_path: 'a', to: '/srv/' } }],
  context,
  ...more,
});
const build = (
  harness: ControlHarness,
  context: string,
  more?: Record<string, unknown>,
  headers: Record<string, string> = {},
): Promise<Answer> => harness.call('POST', BUILD, { body: bodyOf(context, more), headers });

async function waitForEnd(harness: ControlHarness, id: string): Promise<Answer['body']> {
  const path = `/v1/images/builds/${id}`;
  await waitFor(
    'the end of the build',
    async () => (await harness.call('GET', path)).body.status !== 'running',
  );
  return (await harness.call('GET', path)).body;
}

/** The files that wait at a control. */
const waiting = ({ config }: ControlHarness): string[] => readdirSync(join(config.dataDir, 'build-contexts'));

async function countRows(): Promise<number> {
  await using db = both.one.openDatabase();
  return (await db.selectFrom('build_contexts').selectAll().execute()).length;
}

test('a build reaches the control that has its files, and is answered as the client asks', async () => {
  const [whole, streamed, detached] = [
    await upload(both.other, 'of one'),
    await upload(both.other, 'of two'),
    await upload(both.other, 'of three'),
  ];
  assert.deepEqual([waiting(both.one).length, waiting(both.other).length], [0, 3]);
  const ended = await build(both.one, whole);
  assert.deepEqual([ended.status, ended.body.status], [201, 'done'], JSON.stringify(ended.body));
  assert.ok(ended.headers.get('ratelimit'), 'the control that was asked has counted the request');
  const events = await both.one.fetch('POST', BUILD, {
    body: bodyOf(streamed),
    headers: { accept: 'text/event-stream' },
  });
  assert.match(await events.text(), /"type":"step"[\s\S]*"type":"end"[^\n]*"status":"done"/u);
  const started = await build(both.one, detached, { detached: true });
  assert.equal(started.status, 201);
  assert.equal(started.headers.get('location'), `/v1/images/builds/${started.body.id}`);
  assert.equal((await waitForEnd(both.one, started.body.id)).status, 'done');
  await waitFor('the end of the files', () => waiting(both.other).length === 0);
  await waitFor('the end of the rows', async () => (await countRows()) === 0);
  const used = await build(both.one, detached);
  assert.deepEqual([used.status, used.body.error.code], [400, 'invalid_request']);
  assert.match(used.body.error.message, /^context: there is no such context, or it was used/u);
});

test('a repeated request starts one build, through either control', async () => {
  const context = await upload(both.other);
  const headers = { 'idempotency-key': 'once' };
  const more = { detached: true, no_cache: true };
  const first = await build(both.one, context, more, headers);
  assert.equal(first.status, 201, JSON.stringify(first.body));
  await waitForEnd(both.one, first.body.id);
  for (const harness of [both.one, both.other]) {
    const again = await build(harness, context, more, headers);
    assert.deepEqual([again.status, again.body.id], [201, first.body.id]);
    assert.equal(again.headers.get('idempotency-replayed'), 'true');
  }
  const context2 = await upload(both.other);
  const twins = ['twin', 'twin', 'twin'].map((key, index) =>
    build(index === 1 ? both.other : both.one, context2, more, { 'idempotency-key': key }),
  );
  const ids = new Set((await Promise.all(twins)).map(({ body }) => body.id));
  assert.equal(ids.size, 1);
  await waitForEnd(both.one, [...ids][0]);
});

test('of builds that ask for one context through both controls, one gets it', async () => {
  const context = await upload(both.other);
  const more = { detached: true, no_cache: true, steps: [{ run: 'wait' }] };
  const answers = await Promise.all(
    [both.one, both.other, both.one, both.other].map((harness) => build(harness, context, more)),
  );
  assert.deepEqual(
    answers.map(({ status }) => status).toSorted((a, b) => a - b),
    [201, 400, 400, 400],
  );
  for (const { status, body } of answers)
    if (status === 400) assert.match(body.error.message, /^context: another build uses it/u);
  const busy = await both.one.call('DELETE', `${CONTEXTS}/${context}`);
  assert.deepEqual([busy.status, busy.body.error.code], [404, 'not_found']);
  const { id } = answers.find(({ status }) => status === 201)?.body ?? {};
  assert.equal((await both.one.call('DELETE', `/v1/images/builds/${id}`)).body.status, 'cancelled');
});

test('a context waits again after its build was refused at the other control, and is deleted through either', async () => {
  const context = await upload(both.other);
  const refused = await build(both.one, context, { from: 'node:latest' });
  assert.deepEqual([refused.status, refused.body.error.code], [400, 'image_not_pinned']);
  const path = `${CONTEXTS}/${context}`;
  const stranger = await both.one.addOrganization();
  assert.equal((await both.one.call('DELETE', path, { apiKey: stranger })).status, 404);
  const foreign = await both.one.call('POST', BUILD, { body: bodyOf(context), apiKey: stranger });
  assert.match(foreign.body.error.message, /^context: there is no such context/u);
  const deleted = await both.one.call('DELETE', path);
  assert.deepEqual([deleted.status, deleted.body], [200, { deleted: true }]);
  assert.ok(!waiting(both.other).includes(`${context}.tar`));
  for (const harness of [both.one, both.other])
    assert.equal((await harness.call('DELETE', path)).status, 404);
});

test('a build whose image and whose files are at different controls is refused with the remedy, and not passed on forever', async () => {
  const own = await upload(both.one);
  const based = await build(both.one, own, { name: 'based:1' });
  assert.equal(based.body.status, 'done', JSON.stringify(based.body));
  // The runners give their images the same digests.
  both.other.runner.built.made.delete(based.body.image.split('@')[1]);
  const context = await upload(both.other);
  for (const harness of [both.other, both.one]) {
    const startedAt = performance.now();
    const answer = await build(harness, context, { from: 'built/based:1', name: 'based:2' });
    assert.deepEqual([answer.status, answer.body.error.code], [400, 'invalid_request']);
    assert.match(answer.body.error.message, /^context: .*lacks the image.*upload the files again/u);
    assert.ok(performance.now() - startedAt < 5_000);
  }
  const near = await build(both.other, await upload(both.one), { from: 'built/based:1', name: 'based:2' });
  assert.equal(near.body.status, 'done', JSON.stringify(near.body));
  assert.equal((await both.one.call('DELETE', `${CONTEXTS}/${context}`)).status, 200, 'it waits again');
});

test('the files of a control that has ended are gone, also when it starts again', async () => {
  const [used, deleted] = [await upload(both.other), await upload(both.other)];
  await both.other.stopControl();
  const assertGone = async (): Promise<void> => {
    const refused = await build(both.one, used);
    assert.deepEqual([refused.status, refused.body.error.code], [400, 'invalid_request']);
    assert.match(refused.body.error.message, /^context: there is no such context.*upload it again/u);
    assert.equal((await both.one.call('DELETE', `${CONTEXTS}/${deleted}`)).status, 404);
  };
  await assertGone();
  await both.startOther();
  await assertGone();
});
