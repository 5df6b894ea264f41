/** Images built from steps in real sandboxes, and sandboxes made from them. */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pino } from 'pino';
import { RunnerClient } from '../../packages/server/src/control/placement/runner-client.ts';
import { RunnerConnection } from '../../packages/server/src/control/placement/runner-connection.ts';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import type { OwnedImage } from '../../packages/server/src/lib/protocol/runner-protocol.ts';
import { Api } from '../fixtures/api/api.ts';
import { CloneApi } from '../fixtures/clones/clone-api.ts';
import { writeTar } from '../fixtures/images/oci-layout.ts';
import { API_KEY, Service } from '../fixtures/service/service.ts';
import { PublishedCli } from '../fixtures/cli/published-cli.ts';

const INSTANCE = 18;
const FROM = 'coppice/base:1';
const WAIT_MS = 120_000;

let service: Service;
let api: Api;
before(async () => {
  service = await Service.start({ instance: INSTANCE });
  api = new Api(service);
});
after(() => service[Symbol.asyncDispose]());

interface Build {
  id: string;
  status: string;
  image: string | null;
  run_id: string;
  steps_done: number;
  error: { code: string; message: string } | null;
}

async function build(body: Record<string, unknown>): Promise<Build> {
  const answer = await api.call('POST', '/v1/images/build', { body: { from: FROM, ...body } });
  assert.equal(answer.status, 201, answer.text);
  return answer.body as unknown as Build;
}

async function liveSandboxes(): Promise<number> {
  const { text } = await api.call('GET', '/v1/runs');
  return (JSON.parse(text) as unknown[]).length;
}

test('what the steps change is in the sandboxes of the image, and nothing else of the base is changed', async () => {
  const made = await build({
    name: 'app:1',
    steps: [
      { run: 'printf hello > /etc/greeting && chown 1000:1001 /etc/greeting && chmod 4750 /etc/greeting' },
      { run: 'mkdir -p /srv/data && ln /etc/greeting /srv/data/second && ln -s /etc/greeting /srv/link' },
      { run: 'test -e /etc/passwd && rm /etc/passwd && mv /etc/group /srv/moved' },
      { env: { GREETING: 'built', PATH: '/opt/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin' } },
      { workdir: '/srv/app' },
      { workdir: 'deeper' },
      { run: ['/bin/sh', '-c', 'echo "$GREETING in $(pwd)" > made'] },
      { user: '1000:1001' },
    ],
  });
  assert.equal(made.status, 'done', JSON.stringify(made.error));
  assert.match(made.image ?? '', /^built\/app:1@sha256:[0-9a-f]{64}$/u);
  assert.equal(made.steps_done, 8);
  assert.equal(await liveSandboxes(), 0, 'the sandbox of the build is destroyed');
  const { id, image } = await api.create({ image: 'built/app:1' });
  assert.equal(image, made.image);
  const { stdout, stderr } = await api.exec(
    id,
    'id -u; pwd; echo $GREETING; cat made; stat -c "%u:%g %a %h" /etc/greeting; cat /srv/link; ls /etc/passwd /etc/group 2>/dev/null | wc -l; ls /srv/moved; ls /bin/sh',
  );
  assert.equal(
    stdout,
    '1000\n/srv/app/deeper\nbuilt\nbuilt in /srv/app/deeper\n1000:1001 4750 2\nhello0\n/srv/moved\n/bin/sh\n',
    stderr,
  );
  await api.destroy(id);
  const listed = await api.call('GET', '/v1/images');
  assert.match(listed.text, /"built\/app:1@sha256:/u);
});

test('an image can be built on a built one, a name is replaced, and a deleted image is gone', async () => {
  const second = await build({
    from: 'built/app:1',
    name: 'app:2',
    steps: [{ user: '0' }, { run: 'rm /etc/greeting && cat /srv/data/second > /third' }],
  });
  assert.equal(second.status, 'done', JSON.stringify(second.error));
  const { id } = await api.create({ image: 'built/app:2' });
  assert.equal((await api.exec(id, 'cat /third; ls /etc/greeting')).stdout, 'hello');
  const removed = await api.call('DELETE', '/v1/images?image=built/app:2');
  assert.equal(removed.status, 200, removed.text);
  assert.equal((await api.exec(id, 'cat /third')).stdout, 'hello', 'its sandbox keeps it');
  const refused = await api.call('POST', '/v1/runs', { body: { image: 'built/app:2' } });
  assert.equal(refused.status, 404, refused.text);
  await api.destroy(id);
  const directory = join(service.dataDir, 'runner', 'images', 'images');
  const digest = (second.image ?? '').split('@sha256:')[1] ?? '';
  await service.waitFor(
    'the image to be removed',
    WAIT_MS,
    () => !readdirSync(directory).includes(`sha256-${digest}`),
  );
});

test('what a program has mounted in a renamed directory of the base is not in the image', async () => {
  const made = await build({
    name: 'mounts:1',
    no_cache: true,
    steps: [
      { run: 'mv /etc/profile.d /etc/renamed && mkdir -p /etc/renamed/proc && touch /etc/renamed/over' },
      { run: 'mount -t proc proc /etc/renamed/proc && mkdir /tmp/held && echo secret > /tmp/held/file' },
      { run: 'mount --bind /tmp/held/file /etc/renamed/over && grep secret /etc/renamed/over' },
    ],
  });
  assert.equal(made.status, 'done', JSON.stringify(made.error));
  const { id } = await api.create({ image: 'built/mounts:1' });
  const { stdout } = await api.exec(id, 'ls -A /etc/renamed/proc | wc -l; wc -c < /etc/renamed/over');
  assert.equal(stdout, '0\n0\n');
  await api.destroy(id);
  assert.equal((await api.call('DELETE', '/v1/images?image=built/mounts:1')).status, 200);
});

for (const last of ['snapshot', 'sandbox']) {
  test(`a deleted image stays in the runner until its last ${last} is gone`, async () => {
    using connection = new RunnerConnection(
      { kind: 'socket', path: join(service.runDir, 'runner.sock') },
      pino({ level: 'silent' }),
    );
    const { images } = new RunnerClient(connection);
    const made = await build({ name: 'held:1', no_cache: true, steps: [{ run: 'echo held > /held' }] });
    assert.equal(made.status, 'done', JSON.stringify(made.error));
    const digest = (made.image ?? '').split('@')[1];
    const find = async (): Promise<OwnedImage | undefined> =>
      (await images.listOwned({ build: made.id })).find((image) => image.digest === digest);
    const clones = new CloneApi(api);
    const { id } = await api.create({ image: 'built/held:1' });
    const snapshot = await clones.snapshot(id);
    await api.destroy(id);
    const removed = await api.call('DELETE', '/v1/images?image=built/held:1');
    assert.equal(removed.status, 200, removed.text);
    await service.waitFor('the image to be released', WAIT_MS, async () => (await find())?.released === true);
    const restored = await clones.restore(snapshot);
    assert.equal((await api.exec(restored.id, 'cat /held')).stdout, 'held\n');
    const ends = [() => api.destroy(restored.id), () => clones.deleteSnapshot(snapshot)];
    if (last === 'sandbox') ends.reverse();
    await ends[0]?.();
    assert.equal((await find())?.linked, true, 'its bytes still count');
    await ends[1]?.();
    await service.waitFor('the image to be removed', WAIT_MS, async () => (await find()) === undefined);
  });
}

test('a step that fails ends the build with its number, exit code and last output, and leaves no image', async () => {
  const made = await build({
    name: 'bad:1',
    steps: [{ run: 'true' }, { run: 'echo the reason >&2; exit 7' }, { run: 'true' }],
  });
  assert.equal(made.status, 'failed');
  assert.equal(made.error?.code, 'build_failed');
  assert.match(made.error.message, /^steps\[1\]: .* ended with exit code 7; its last output:\nthe reason$/su);
  assert.equal(await liveSandboxes(), 0);
  assert.equal((await api.call('POST', '/v1/runs', { body: { image: 'built/bad:1' } })).status, 404);
});

test('the log streams while a step runs, another client reads it from an event on, and a cancel ends it', async () => {
  const started = await build({
    name: 'long:1',
    detached: true,
    steps: [{ run: 'for n in 1 2 3; do echo line $n; done; sleep 600' }],
  });
  const path = `/v1/images/builds/${started.id}`;
  const stream = await api.fetch('GET', `${path}/log`, { headers: { accept: 'text/event-stream' } });
  let text = '';
  const reader = (stream.body as ReadableStream<Uint8Array>).getReader();
  while (!text.includes('line 3')) {
    const { value, done } = await reader.read();
    assert.equal(done, false, text);
    text += Buffer.from(value ?? []).toString();
  }
  const cancelled = await api.call('DELETE', path);
  assert.equal(cancelled.body['status'], 'cancelled', cancelled.text);
  assert.equal(await liveSandboxes(), 0);
  for (let part = await reader.read(); !part.done; part = await reader.read())
    text += Buffer.from(part.value).toString();
  assert.match(text, /"type":"end"/u);
  const page = await api.call('GET', `${path}/log?after=1`);
  const { events } = page.body as { events: { seq: number; type: string }[] };
  assert.deepEqual([events[0]?.seq, events.at(-1)?.type], [2, 'end'], page.text);
});

test('a runner killed in the middle of a step does not end the build; a killed control leaves a failed one and no sandbox', async () => {
  const steps = [{ run: 'echo begun; sleep 15; echo still here > /kept' }];
  const first = await build({ name: 'kill:1', detached: true, steps });
  await untilLogHas(first.id, 'begun');
  await service.killRole('runner');
  await waitForEnd(first.id);
  const survived = await api.call('GET', `/v1/images/builds/${first.id}`);
  assert.equal(survived.body['status'], 'done', survived.text);

  const second = await build({ name: 'kill:2', detached: true, steps: [{ run: 'echo begun; sleep 600' }] });
  await untilLogHas(second.id, 'begun');
  await service.killRole('control');
  await waitForEnd(second.id);
  const record = await api.call('GET', `/v1/images/builds/${second.id}`);
  assert.equal(record.body['status'], 'failed', record.text);
  assert.match(record.text, /restarted in the middle of the build/u);
  assert.equal(await liveSandboxes(), 0);
});

async function untilLogHas(id: string, text: string): Promise<void> {
  await service.waitFor(`the log to have ${text}`, WAIT_MS, async () =>
    (await api.call('GET', `/v1/images/builds/${id}/log`)).text.includes(`${text}\\n`),
  );
}

async function waitForEnd(id: string): Promise<void> {
  await service.waitFor('the build to end', WAIT_MS, async () => {
    const answer = await api.call('GET', `/v1/images/builds/${id}`).catch(() => undefined);
    return answer?.status === 200 && answer.body['status'] !== 'running';
  });
}

test('a Dockerfile is built with the files of its context', async (running) => {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-e2e-context-'));
  running.after(() => rmSync(directory, { recursive: true }));
  const archive = join(directory, 'context.tar');
  await writeTar(archive, [
    { path: 'package.json', content: '{}' },
    { path: 'src/' },
    { path: 'src/main.sh', content: 'echo main of $1', mode: 0o644 },
  ]);
  const context = await api.call('POST', '/v1/images/contexts', { raw: readFileSync(archive) });
  assert.equal(context.status, 201, context.text);
  const dockerfile = [
    `FROM ${FROM}`,
    'ARG WHO=nobody',
    'ENV PATH=$PATH:/opt/tools',
    'WORKDIR /srv/app',
    'COPY package*.json ./',
    'COPY --chown=1000:1000 --chmod=755 src /opt/tools',
    'RUN main.sh $WHO > out && test ! -w /opt/absent',
    'RUN <<EOF',
    '#!/bin/sh -e',
    'test "$WHO" = world',
    'ps -o args= | grep -q . && echo script > scripted',
    'EOF',
    'CMD ["sh"]',
  ].join('\n');
  const body = { name: 'docker:1', dockerfile, build_args: { WHO: 'world' }, context: context.body['id'] };
  const answer = await api.call('POST', '/v1/images/build', { body });
  assert.equal(answer.body['status'], 'done', answer.text);
  const { id } = await api.create({ image: 'built/docker:1' });
  const { stdout, stderr } = await api.exec(
    id,
    'pwd; ls; cat out scripted; ls /dev/shm; stat -c "%u %a" /opt/tools/main.sh; echo "[$WHO]"',
  );
  assert.equal(
    stdout,
    '/srv/app\nout\npackage.json\nscripted\nmain of world\nscript\n1000 755\n[]\n',
    stderr,
  );
  await api.destroy(id);
  const again = await api.call('POST', '/v1/images/build', { body });
  assert.equal(again.status, 400, again.text);
  assert.match(again.text, /upload it again/u);
});

test('steps that have not changed do not run again, and a build of cached steps alone starts no sandbox', async () => {
  const dockerfile = [
    `FROM ${FROM}`,
    'RUN cat /proc/sys/kernel/random/uuid > /stamp',
    'COPY main /srv/',
    'RUN cat /srv/main > /made',
  ].join('\n');
  const first = await buildCached({ name: 'cache:1', dockerfile, main: 'one' });
  assert.deepEqual(first.cached, [false, false, false]);
  const second = await buildCached({ name: 'cache:2', dockerfile, main: 'one' });
  assert.deepEqual(second.cached, [true, true, true]);
  assert.equal(digestOf(second), digestOf(first));
  assert.equal((await api.call('GET', `/v1/runs/${second.run_id}`)).status, 404, 'there was no sandbox');
  const third = await buildCached({ name: 'cache:3', dockerfile, main: 'two' });
  assert.deepEqual(third.cached, [true, false, false]);
  const fourth = await buildCached({ name: 'cache:4', dockerfile, main: 'two', no_cache: true });
  assert.deepEqual(fourth.cached, [false, false, false]);
  const files = [];
  for (const number of [1, 2, 3, 4]) files.push(await readMade(`built/cache:${number}`));
  const [one, same, changed, fresh] = files;
  assert.deepEqual(same, one);
  assert.deepEqual([one?.made, changed?.made, fresh?.made], ['one', 'two', 'two']);
  assert.equal(changed?.stamp, one?.stamp, 'the first step did not run again');
  assert.notEqual(fresh?.stamp, one?.stamp);
  const listed = await api.call('GET', '/v1/images');
  assert.doesNotMatch(listed.text, /built\/(?:step|image)/u);
});

test('a runner killed while it saves a step saves it once it is back, and a control killed after that leaves it', async () => {
  const steps = (last: string) => [{ run: 'echo begun > /begun' }, { run: last }];
  const first = await build({ name: 'half:1', detached: true, steps: steps('sleep 10') });
  const staging = join(service.dataDir, 'runner', 'images', 'staging');
  const untilMs = performance.now() + WAIT_MS;
  while (!readdirSync(staging).some((name) => name.startsWith('image-'))) {
    assert.ok(performance.now() < untilMs, 'the step is saved');
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  await service.killRole('runner');
  await waitForEnd(first.id);
  const survived = await api.call('GET', `/v1/images/builds/${first.id}`);
  assert.equal(survived.body['status'], 'done', survived.text);
  assert.doesNotMatch(await logOf(first.id), /not cached/u);
  const images = join(service.dataDir, 'runner', 'images', 'images');
  for (const name of readdirSync(images))
    for (const file of ['image.json', 'image.squashfs'])
      assert.ok(readdirSync(join(images, name)).includes(file), `${name} has ${file}`);
  const second = await build({ name: 'half:2', detached: true, steps: steps('echo waits; sleep 600') });
  await untilLogHas(second.id, 'waits');
  assert.deepEqual(readCached(await logOf(second.id)), [true, false]);
  await service.killRole('control');
  await waitForEnd(second.id);
  const third = await build({ name: 'half:3', steps: steps('cat /begun') });
  assert.equal(third.status, 'done', JSON.stringify(third.error));
  assert.deepEqual(readCached(await logOf(third.id)), [true, false]);
});

/** Appends to one file after another, so their sizes differ by 1 at most at any moment. */
const IN_STEP = 'while :; do for file in /step-*/file; do echo >> $file; done; done';

test('no program runs while its files become an image, also after a snapshot in the middle; its copy continues', async () => {
  const names = Array.from({ length: 12 }, (_, number) => `/step-${number}`).join(' ');
  const fill = 'head -c 33554432 /dev/zero > $place/zeros && : > $place/file';
  const started = await build({
    name: 'moving:1',
    no_cache: true,
    detached: true,
    steps: [
      {
        run: `for place in ${names}; do mkdir $place && ${fill}; done; echo filled; (trap '' HUP; ${IN_STEP}) > /dev/null 2>&1 & sleep 1`,
      },
    ],
  });
  // Before, the base may become an image.
  await untilLogHas(started.id, 'filled');
  const staging = join(service.dataDir, 'runner', 'images', 'staging');
  await pollUntil({ step: 'the image to be made', timeoutMs: WAIT_MS, intervalMs: 10 }, () =>
    readdirSync(staging).some((name) => name.startsWith('image-')) ? true : undefined,
  );
  const clones = new CloneApi(api);
  const snapshot = await clones.snapshot(started.run_id);
  const meanwhile = await api.call('GET', `/v1/images/builds/${started.id}`);
  assert.equal(meanwhile.body['status'], 'running', 'the image is still made when the snapshot has ended');
  await waitForEnd(started.id);
  const made = await api.call('GET', `/v1/images/builds/${started.id}`);
  assert.equal(made.body['status'], 'done', made.text);
  const { id } = await api.create({ image: 'built/moving:1' });
  const counts = await sizes(id);
  await api.destroy(id);
  assert.equal(counts.length, 12);
  assert.ok(Math.min(...counts) > 0, 'the program ran before');
  assert.ok(Math.max(...counts) - Math.min(...counts) <= 1, `the program ran meanwhile: ${counts.join(' ')}`);
  const copy = await clones.restore(snapshot);
  const [before = 0] = await sizes(copy.id);
  await pollUntil({ step: 'the copy to continue', timeoutMs: WAIT_MS, intervalMs: 100 }, async () =>
    ((await sizes(copy.id))[0] ?? 0) > before ? true : undefined,
  );
  await api.destroy(copy.id);
  await clones.deleteSnapshot(snapshot);
});

async function sizes(id: string): Promise<number[]> {
  const { stdout } = await api.exec(id, 'stat -c %s /step-*/file');
  return stdout.trim().split('\n').map(Number);
}

interface CachedBuild extends Build {
  cached: boolean[];
}

/** Builds with a context of one file. */
async function buildCached({
  main,
  ...body
}: Record<string, unknown> & { main: string }): Promise<CachedBuild> {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-e2e-cache-'));
  try {
    const archive = join(directory, 'context.tar');
    await writeTar(archive, [{ path: 'main', content: main }]);
    const context = await api.call('POST', '/v1/images/contexts', { raw: readFileSync(archive) });
    assert.equal(context.status, 201, context.text);
    const built = await build({ from: undefined, context: context.body['id'], ...body });
    assert.equal(built.status, 'done', JSON.stringify(built.error));
    return { ...built, cached: readCached(await logOf(built.id)) };
  } finally {
    rmSync(directory, { recursive: true });
  }
}

async function logOf(id: string): Promise<string> {
  return (await api.call('GET', `/v1/images/builds/${id}/log`)).text;
}

function readCached(log: string): boolean[] {
  const { events } = JSON.parse(log) as { events: { type: string; cached: boolean }[] };
  return events.filter(({ type }) => type === 'step').map(({ cached }) => cached);
}

function digestOf({ image }: Build): string {
  return (image ?? '').split('@')[1] ?? '';
}

async function readMade(image: string): Promise<{ stamp: string; made: string }> {
  const { id } = await api.create({ image });
  const { stdout } = await api.exec(id, 'cat /stamp /made');
  await api.destroy(id);
  const [stamp = '', made = ''] = stdout.split('\n');
  return { stamp, made };
}

test('the command line builds a directory, shows the log, and says which step failed', async (running) => {
  using cli = new PublishedCli();
  const { code: login, stderr: said } = await cli.run(
    ['login', '--url', service.address, '--key-stdin'],
    API_KEY,
  );
  assert.equal(login, 0, said);
  const directory = mkdtempSync(join(tmpdir(), 'coppice-e2e-directory-'));
  running.after(() => rmSync(directory, { recursive: true }));
  writeFileSync(join(directory, '.dockerignore'), 'secret\n');
  writeFileSync(join(directory, 'secret'), 'x');
  writeFileSync(join(directory, 'kept'), 'kept');
  writeFileSync(join(directory, 'Dockerfile'), `FROM ${FROM}\nCOPY . /srv\nRUN ls -A /srv\n`);
  const built = await cli.run(['image', 'build', '-t', 'cli:1', directory]);
  assert.equal(built.code, 0, built.stderr);
  assert.match(built.stdout, /^built\/cli:1@sha256:[0-9a-f]{64}\n$/u);
  assert.match(built.stderr, /\.dockerignore\nDockerfile\nkept\n/u);
  assert.doesNotMatch(built.stderr, /secret\n/u);
  const again = await cli.run(['image', 'build', '-t', 'cli:1', directory]);
  assert.equal(again.stdout, built.stdout);
  assert.match(again.stderr, /\[2\] cached: line 3: RUN ls/u);
  const fresh = await cli.run(['image', 'build', '--no-cache', '-t', 'cli:1', directory]);
  assert.equal(fresh.code, 0, fresh.stderr);
  assert.doesNotMatch(fresh.stderr, /cached: /u);
  writeFileSync(join(directory, 'Dockerfile'), `FROM ${FROM}\n\nRUN echo why; exit 9\n`);
  const failed = await cli.run(['images', 'build', '-t', 'cli:2', directory]);
  assert.notEqual(failed.code, 0);
  assert.match(failed.stderr, /line 3: .*ended with exit code 9/u);
  const removed = await cli.run(['images', 'rm', 'built/cli:1']);
  assert.equal(removed.code, 0, removed.stderr);
  writeFileSync(join(directory, 'Dockerfile'), `FROM ${FROM}\nRUN echo begun; sleep 600\n`);
  const interrupted = cli.start('images', 'build', '-t', 'cli:3', directory);
  await pollUntil({ step: 'the output of the step', timeoutMs: WAIT_MS, intervalMs: 100 }, () =>
    interrupted.stderr.includes('begun\n') ? true : undefined,
  );
  interrupted.child.kill('SIGINT');
  assert.equal((await interrupted.result()).code, 130);
  const { body } = await api.call('GET', '/v1/images/builds');
  const [newest] = body as unknown as Build[];
  assert.equal(newest?.status, 'cancelled');
  assert.equal(await liveSandboxes(), 0);
});
