/** Builds of images from steps, through the real API, with guests that the test controls. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { AppError } from '@coppice/contract';
import { FRAME } from '../../lib/protocol/frames.ts';
import type { FakeGuestCommand } from '../testing/fakes/fake-commands.ts';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import { layOutTar } from '../testing/tar-of-files.ts';

const BUILD = '/v1/images/build';
let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());
beforeEach(() => {
  harness.runner.built.onCommit = () => undefined;
  harness.runner.built.sizeBytes = 1000;
});

async function start(body: Record<string, unknown>, headers: Record<string, string> = {}) {
  const whole = { from: 'node:22-slim', name: 'app:1', steps: [], detached: true, ...body };
  return harness.call('POST', BUILD, { body: whole, headers });
}

async function waitForEnd(id: string) {
  await waitFor(
    'the end of the build',
    async () => (await harness.call('GET', `/v1/images/builds/${id}`)).body.status !== 'running',
  );
  return (await harness.call('GET', `/v1/images/builds/${id}`)).body;
}

/** Waits for the command of a step that has not ended. */
async function nextCommand(sandboxId: string): Promise<FakeGuestCommand> {
  const { commands } = harness.runner;
  const find = () => commands.list(sandboxId).find(({ exit }) => exit === undefined);
  await waitFor('a command', () => find() !== undefined);
  const found = find();
  assert.ok(found);
  return found;
}

test('steps run with what the steps before them have set, and the image gets their config', async () => {
  const { body } = await start({
    steps: [
      { env: { A: 'x' } },
      { workdir: 'sub' },
      { user: 'app' },
      { run: 'make' },
      { run: ['/bin/tool', "it's"] },
    ],
  });
  const first = await nextCommand(body.run_id);
  assert.deepEqual(
    [first.head['command'], first.head['cwd'], first.head['user'], first.head['env']],
    ['make', '/base/sub', 'app', { A: 'x' }],
  );
  harness.runner.commands.end(body.run_id, first, 0);
  const second = await nextCommand(body.run_id);
  assert.equal(second.head['command'], String.raw`exec '/bin/tool' 'it'\''s'`);
  harness.runner.commands.end(body.run_id, second, 0);
  const ended = await waitForEnd(body.id);
  assert.equal(ended.status, 'done', JSON.stringify(ended));
  const { config } = harness.runner.built.commits.at(-1) ?? {};
  assert.deepEqual(config, { env: { PATH: '/bin', A: 'x' }, user: 'app', workdir: '/base/sub' });
  assert.equal(harness.runner.vms.has(body.run_id), false, 'its sandbox is destroyed');
});

test('a failed step names itself, its exit code and its last output', async () => {
  const { body } = await start({ name: 'bad:1', steps: [{ run: 'false' }] });
  const command = await nextCommand(body.run_id);
  harness.runner.commands.print(command, 'the reason\n', FRAME.stderr);
  harness.runner.commands.end(body.run_id, command, 3);
  const ended = await waitForEnd(body.id);
  assert.deepEqual(ended.error, {
    code: 'build_failed',
    message: 'steps[0]: false ended with exit code 3; its last output:\nthe reason',
  });
  assert.equal(harness.runner.vms.has(body.run_id), false);
});

test('only the organization that has built an image can use, list and delete it', async () => {
  const { body } = await start({ name: 'mine:1' });
  const { image } = await waitForEnd(body.id);
  const other = { apiKey: await harness.addOrganization() };
  const digest = (image as string).split('@')[1];
  for (const asked of ['built/mine:1', image as string, `built/other:1@${digest}`]) {
    const answer = await harness.call('POST', '/v1/runs', { body: { image: asked }, apiKey: other.apiKey });
    assert.deepEqual([answer.status, answer.body.error.code], [404, 'image_not_found'], asked);
    const prepared = await harness.call('POST', BUILD, { body: { image: asked }, apiKey: other.apiKey });
    assert.equal(prepared.status, 404, asked);
  }
  for (const path of [`/v1/images/builds/${body.id}`, `/v1/images/builds/${body.id}/log`])
    assert.equal((await harness.call('GET', path, { apiKey: other.apiKey })).status, 404);
  const removal = '/v1/images?image=built/mine:1';
  assert.equal((await harness.call('DELETE', removal, { apiKey: other.apiKey })).status, 404);
  const created = await harness.call('POST', '/v1/runs', { body: { image: 'built/mine:1' } });
  assert.equal(created.status, 201, JSON.stringify(created.body));
  assert.equal(harness.runner.creates.at(-1)?.image, image);
  assert.equal((await harness.call('DELETE', removal)).status, 200);
  assert.ok(harness.runner.built.released.includes(digest ?? ''));
  assert.equal((await harness.call('POST', '/v1/runs', { body: { image: 'built/mine:1' } })).status, 404);
});

test('a request with a used Idempotency-Key starts no second build', async () => {
  const headers = { 'idempotency-key': 'once' };
  const first = await start({ name: 'once:1' }, headers);
  await waitForEnd(first.body.id);
  const second = await start({ name: 'once:1' }, headers);
  assert.equal(second.body.id, first.body.id);
  assert.equal((await start({ name: 'once:2' }, headers)).status, 422);
});

test('the error of the runner is that of the build, and an image that is replaced is given up', async () => {
  harness.runner.built.onCommit = () => {
    throw new AppError('invalid_image', 'the files of the build cannot become an image: too many');
  };
  const failed = await waitForEnd((await start({ name: 'twice:1' })).body.id);
  assert.deepEqual([failed.status, failed.error.code], ['failed', 'invalid_image']);
  harness.runner.built.onCommit = () => undefined;
  const first = await waitForEnd((await start({ name: 'twice:1' })).body.id);
  await waitForEnd((await start({ name: 'twice:1' })).body.id);
  const digest = (first.image as string).split('@')[1] ?? '';
  await waitFor('the release', () => harness.runner.built.released.includes(digest));
});

test('a full quota refuses the next build, and the room that is left goes to the runner', async () => {
  const other = { apiKey: await harness.addOrganization() };
  const call = (name: string) =>
    harness.call('POST', BUILD, {
      body: { from: 'node:22-slim', name, steps: [], detached: false },
      apiKey: other.apiKey,
    });
  harness.runner.built.sizeBytes = 20 * 2 ** 30 - 5;
  assert.equal((await call('big:1')).body.status, 'done');
  harness.runner.built.sizeBytes = 5;
  assert.equal((await call('big:2')).body.status, 'done');
  assert.equal(harness.runner.built.commits.at(-1)?.max_bytes, 5);
  const refused = await call('big:3');
  assert.deepEqual([refused.status, refused.body.error.code], [429, 'capacity']);
});

test('a request that is neither of the two kinds is refused with the field', async () => {
  for (const [body, pattern] of [
    [{}, /^image: is required, give exactly one/u],
    [{ image: 'node:22-slim', from: 'node:22-slim', name: 'a:1', steps: [] }, /image: give exactly one/u],
    [{ from: 'node:22-slim', steps: [] }, /name: is required, give it with from or dockerfile/u],
    [{ from: 'node:22-slim', name: 'a:1' }, /steps: is required, give them with from/u],
    [{ from: 'node:22-slim', name: 'a', steps: [] }, /no tag/u],
    [
      { from: 'node:22-slim', name: 'a:1', steps: [{ run: 'x', user: 'y' }] },
      /steps\[0\]: must have exactly one of/u,
    ],
    [{ from: 'node:22-slim', name: 'a:1', steps: [], context: 'context1' }, /context: there is no such/u],
    [{ name: 'a:1', dockerfile: 'FROM a:1\nONBUILD x' }, /dockerfile: line 2: ONBUILD/u],
  ] as const) {
    const answer = await harness.call('POST', BUILD, { body });
    assert.equal(answer.status, 400, JSON.stringify(answer.body));
    assert.match(answer.body.error.message, pattern);
  }
});

test('a context that is no archive, or has what cannot be copied, is refused', async () => {
  const answer = await harness.call('POST', '/v1/images/contexts', { raw: 'x'.repeat(2000) });
  assert.equal(answer.status, 400, JSON.stringify(answer.body));
  assert.match(answer.body.error.message, /no usable tar archive/u);
});

async function upload(apiKey?: string): Promise<string> {
  const raw = layOutTar([{ path: 'a', content: 'x' }]);
  const { status, body } = await harness.call('POST', '/v1/images/contexts', {
    raw,
    ...(apiKey && { apiKey }),
  });
  assert.equal(status, 201, JSON.stringify(body));
  return body.id;
}

test('a context is still there after the start of its build was refused, and not while another build uses it', async () => {
  const context = await upload();
  for (const body of [
    { dockerfile: 'FROM a:1\nRUN <<EOF', from: undefined, steps: undefined },
    { from: 'node:latest' },
  ]) {
    const refused = await start({ ...body, context });
    assert.equal(refused.status, 400, JSON.stringify(refused.body));
  }
  const first = await start({ name: 'taken:1', steps: [{ run: 'wait' }], context });
  assert.equal(first.status, 201, JSON.stringify(first.body));
  const second = await start({ name: 'taken:2', context });
  assert.equal(second.status, 400);
  assert.match(second.body.error.message, /^context: another build uses it/u);
  assert.equal((await harness.call('DELETE', `/v1/images/contexts/${context}`)).status, 404);
  harness.runner.commands.end(first.body.run_id, await nextCommand(first.body.run_id), 0);
  await waitForEnd(first.body.id);
  await waitFor('the end of the context', async () => {
    const { body } = await start({ name: 'taken:3', context });
    return /was used/u.test(body.error?.message ?? '');
  });
});

test('a context can be deleted, and only by its organization', async () => {
  const context = await upload();
  const path = `/v1/images/contexts/${context}`;
  const other = await harness.addOrganization();
  assert.equal((await harness.call('DELETE', path, { apiKey: other })).status, 404);
  const deleted = await harness.call('DELETE', path);
  assert.deepEqual([deleted.status, deleted.body], [200, { deleted: true }]);
  assert.deepEqual((await harness.call('DELETE', path)).body.error.code, 'not_found');
});

test('variables that grow fail the build with the line, before a step has run', async () => {
  const lines = [
    'FROM node:22-slim',
    'RUN first',
    'ENV A=0123456789abcdef',
    ...Array.from({ length: 30 }, () => 'ENV A=$A$A'),
  ];
  const { body } = await start({ dockerfile: lines.join('\n'), from: undefined, steps: undefined });
  const ended = await waitForEnd(body.id);
  assert.equal(ended.error.code, 'build_failed');
  assert.match(ended.error.message, /^dockerfile: line 15: a word has more than 32768 bytes/u);
  assert.deepEqual(harness.runner.commands.list(body.run_id), []);
});

test('a control that is stopped fails its builds and leaves no sandbox', async () => {
  const { body } = await start({ name: 'stop:1', steps: [{ run: 'sleep' }] });
  await nextCommand(body.run_id);
  await harness.stopControl();
  assert.equal(harness.runner.vms.has(body.run_id), false);
  await harness.startControl();
  const ended = await waitForEnd(body.id);
  assert.equal(ended.status, 'failed');
  assert.match(ended.error.message, /stopped in the middle/u);
});
