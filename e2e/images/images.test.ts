import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Api } from '../fixtures/api/api.ts';
import { NODE_IMAGE, shared } from '../fixtures/service/shared.ts';
import { countTemplates, countTemplatesAt, listTemplates } from '../fixtures/service/template-log.ts';
import { pushTinyImage } from '../fixtures/images/tiny-image.ts';

const BUILD = '/v1/images/build';
const SHELL = ['/bin/sh'];
/** Limit for an image that is already prepared. */
const FAST_MS = 1000;

interface BuildEvent {
  type: 'step' | 'done' | 'error';
  step?: string;
  elapsed_ms?: number;
  image?: Record<string, unknown>;
  error?: Record<string, string>;
}

async function buildAsEvents(api: Api, image: string): Promise<BuildEvent[]> {
  const answer = await api.call('POST', BUILD, { body: { image }, headers: { accept: 'text/event-stream' } });
  assert.deepEqual(
    [answer.status, answer.headers.get('content-type')?.split(';')[0]],
    [200, 'text/event-stream'],
    answer.text,
  );
  return [...answer.text.matchAll(/^data: (.*)$/gmu)].map(([, data]) => JSON.parse(data!) as BuildEvent);
}

async function listImages(api: Api): Promise<Record<string, unknown>[]> {
  return (await api.call('GET', '/v1/images')).body as unknown as Record<string, unknown>[];
}

function stepsOf(events: readonly BuildEvent[]): (string | undefined)[] {
  return events.filter(({ type }) => type === 'step').map(({ step }) => step);
}

test('a built image is listed with digest, size and status, and a second build is fast', async () => {
  const { api, registry } = await shared();
  const digest = await pushTinyImage(registry, { name: 'e2e/listed:1', programs: SHELL });
  const reference = `docker.io/e2e/listed:1@${digest}`;
  const isListed = async () => (await listImages(api)).some(({ image }) => image === reference);
  assert.equal(await isListed(), false);

  const built = await api.call('POST', BUILD, { body: { image: 'e2e/listed:1' } });
  assert.equal(built.status, 200, built.text);
  const { size_bytes: sizeBytes, prepared_at: preparedAt, ...rest } = built.body;
  const shapes = [{ vcpus: 1, mem_mib: 1024, disk_mib: 4096, max_disk_mib: 16_383 }];
  assert.deepEqual(rest, { image: reference, digest, status: 'ready', shapes });
  assert.ok(Number(sizeBytes) > 100_000, `size ${String(sizeBytes)}`);
  assert.ok(Math.abs(Date.parse(String(preparedAt)) - Date.now()) < 60_000, String(preparedAt));
  assert.deepEqual(
    (await listImages(api)).filter(({ image }) => image === reference),
    [built.body],
  );

  const started = performance.now();
  const again = await api.call('POST', BUILD, { body: { image: 'e2e/listed:1' } });
  assert.ok(performance.now() - started < FAST_MS);
  assert.deepEqual(again.body, built.body);
});

test('a build with events reports its steps and ends with the record', async () => {
  const { api, registry } = await shared();
  const digest = await pushTinyImage(registry, { name: 'e2e/events:1', programs: SHELL });
  const events = await buildAsEvents(api, 'e2e/events:1');
  assert.deepEqual(stepsOf(events), ['resolve', 'pull', 'flatten', 'template']);
  const elapsed = events.flatMap(({ elapsed_ms: ms }) => ms ?? []);
  assert.deepEqual(
    elapsed,
    elapsed.toSorted((a, b) => a - b),
  );
  const last = events.at(-1);
  assert.deepEqual([last?.type, last?.image?.['digest'], last?.image?.['status']], ['done', digest, 'ready']);

  const started = performance.now();
  const again = await buildAsEvents(api, 'e2e/events:1');
  assert.ok(performance.now() - started < FAST_MS);
  assert.deepEqual(stepsOf(again), ['resolve']);
  assert.deepEqual(again.at(-1), last);
});

test('a create of a built image and shape boots nothing', async () => {
  const { api, service, registry } = await shared();
  await pushTinyImage(registry, { name: 'e2e/ready:1', programs: SHELL });
  const given = { mem_mib: 256, disk_mib: 64 };
  const built = await api.call('POST', BUILD, { body: { image: 'e2e/ready:1', shapes: [given] } });
  assert.equal(built.status, 200, built.text);
  assert.deepEqual(built.body['shapes'], [
    { vcpus: 1, mem_mib: 256, disk_mib: 64, max_disk_mib: 511 },
    { vcpus: 1, mem_mib: 1024, disk_mib: 4096, max_disk_mib: 16_383 },
  ]);
  const isOwn = ({ image }: { image: string }): boolean => image === built.body['image'];
  await service.waitFor('the log', 10_000, () => listTemplates(service).filter(isOwn).length === 2);
  const made = listTemplates(service).filter(isOwn);
  assert.deepEqual(
    made.map(({ shape }) => [shape.vcpus, shape.memMiB, shape.diskMiB]),
    [
      [1, 1024, 4096],
      [1, 256, 64],
    ],
  );
  const before = countTemplates(service);
  for (const shape of [{}, given, { ...given, disk_mib: 300 }]) {
    const { id } = await api.create({ image: 'e2e/ready:1', ...shape });
    assert.equal(await countTemplatesAt(service, id), before);
    await api.destroy(id);
  }

  // A shape that was not built is listed after its first create.
  const other = { mem_mib: 192, disk_mib: 64 };
  const { id } = await api.create({ image: 'e2e/ready:1', ...other });
  assert.equal(await countTemplatesAt(service, id), before + 1);
  await api.destroy(id);
  const listed = (await listImages(api)).find(({ image }) => image === built.body['image']);
  const ready = built.body['shapes'] as object[];
  assert.deepEqual(listed?.['shapes'], [{ vcpus: 1, ...other, max_disk_mib: 511 }, ...ready]);
});

test('a shape that the machine can never give is refused, and the answer names its index', async () => {
  const { api } = await shared();
  const shapes = [{ mem_mib: 256 }, { mem_mib: 262_144 }];
  const answer = await api.call('POST', BUILD, { body: { image: NODE_IMAGE, shapes } });
  assert.equal(answer.status, 400, answer.text);
  assert.match(answer.text, /shapes\[1\]\.mem_mib: must be at most \d+ \(MiB\) on this machine/u);
});

test('a build of an unknown image fails alike in both forms', async () => {
  const { api } = await shared();
  const asJson = await api.call('POST', BUILD, { body: { image: 'e2e/absent:1' } });
  const error = asJson.body['error'] as Record<string, string>;
  assert.deepEqual([asJson.status, error['code']], [404, 'image_not_found'], asJson.text);
  assert.match(error['message'] ?? '', /e2e\/absent:1/u);

  const last = (await buildAsEvents(api, 'e2e/absent:1')).at(-1);
  assert.equal(last?.type, 'error');
  assert.deepEqual([last.error?.['code'], last.error?.['message']], ['image_not_found', error['message']]);
  assert.match(last.error?.['request_id'] ?? '', /./u);
});

test('a build of a floating tag is refused before any event', async () => {
  const { api } = await shared();
  for (const accept of ['application/json', 'text/event-stream']) {
    const answer = await api.call('POST', BUILD, { body: { image: 'node:latest' }, headers: { accept } });
    assert.equal(answer.status, 400, answer.text);
    assert.match(answer.text, /image_not_pinned/u);
  }
});

test('an image can be named by the digest of its resolved reference', async () => {
  const { api } = await shared();
  const first = await api.create({ image: NODE_IMAGE });
  const digest = /@(sha256:[0-9a-f]{64})$/u.exec(String(first['image']))?.[1];
  const second = await api.create({ image: `library/node@${digest}` });
  assert.equal(second['image'], `docker.io/library/node@${digest}`);
  assert.match((await api.exec(second.id, 'node --version')).stdout, /^v22\./u);
  await Promise.all([api.destroy(first.id), api.destroy(second.id)]);
});

test('a sandbox of an image without /bin/sh runs, serves files and refuses an exec with a clear answer', async () => {
  const { api, registry } = await shared();
  await pushTinyImage(registry, {
    name: 'e2e/no-shell:1',
    entries: [{ path: 'data/file', content: 'found' }],
  });
  const { id } = await api.create({ image: 'e2e/no-shell:1', mem_mib: 256 });
  const exec = await api.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'true' } });
  assert.equal(exec.status, 400, exec.text);
  assert.match(exec.text, /\/bin\/sh/u);
  const file = await api.call('GET', `/v1/runs/${id}/files/download?path=/data/file`);
  assert.deepEqual([file.status, file.text], [200, 'found']);
  assert.equal((await api.destroy(id)).status, 200);
});

test("an image's USER, WORKDIR and ENV apply to a command, and the request can override them", async () => {
  const { api, registry } = await shared();
  await pushTinyImage(registry, {
    name: 'e2e/configured:1',
    programs: ['/bin/sh', '/usr/bin/id'],
    entries: [
      { path: 'etc/passwd', content: 'root:x:0:0::/root:/bin/sh\napp:x:4321:4322::/srv/app:/bin/sh\n' },
      { path: 'etc/group', content: 'root:x:0:\nstaff:x:4322:\n' },
      { path: 'srv/app/', uid: 4321, gid: 4322 },
      { path: 'opt/bin/greet', content: '#!/bin/sh\necho "$GREETING"\n', mode: 0o755 },
    ],
    config: {
      User: 'app',
      WorkingDir: '/srv/app',
      Env: ['PATH=/opt/bin:/usr/bin:/bin', 'GREETING=hello = world'],
    },
  });
  const { id } = await api.create({ image: 'e2e/configured:1', mem_mib: 256 });
  const show = 'id -u; id -g; pwd; echo "$HOME"; greet; echo x > own && echo wrote';
  const honoured = await api.exec(id, show);
  assert.equal(honoured.stdout, '4321\n4322\n/srv/app\n/srv/app\nhello = world\nwrote\n', honoured.stderr);
  const overridden = await api.exec(id, 'id -u; pwd; greet', {
    user: 'root',
    cwd: '/opt',
    env: { GREETING: 'other' },
  });
  assert.equal(overridden.stdout, '0\n/opt\nother\n', overridden.stderr);
  await api.destroy(id);
});

test('concurrent first creates of one image prepare it once', async () => {
  const { api, registry, service } = await shared();
  const digest = await pushTinyImage(registry, { name: 'e2e/at-once:1', programs: SHELL });
  const creates = Array.from({ length: 4 }, () => api.create({ image: 'e2e/at-once:1', mem_mib: 256 }));
  const sandboxes = await Promise.all(creates);
  const outputs = await Promise.all(sandboxes.map(({ id }) => api.exec(id, 'echo here')));
  assert.deepEqual(
    outputs.map(({ stdout }) => stdout),
    sandboxes.map(() => 'here\n'),
  );
  await Promise.all(sandboxes.map(({ id }) => api.destroy(id)));
  const prepared = service.output
    .split('\n')
    .filter((line) => line.includes('"image prepared"') && line.includes(digest));
  assert.equal(prepared.length, 1);
});
