import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import type { ServerResponse } from 'node:http';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import {
  errorBody,
  LoopbackServer,
  sendJson,
  type SeenRequest,
} from '../../../sdk/src/testing/loopback-server.ts';
import { CliUser, until } from '../testing/cli-process.ts';

const ID = 'build0123456789abcdef0123';
const CONTEXT = 'context0123456789abcdef01';
const BUILD = `/v1/images/builds/${ID}`;
const IMAGE = 'built/app:1@sha256:0';
const RUNNING = {
  id: ID,
  status: 'running',
  name: 'built/app:1',
  from: 'node:22-slim',
  image: null,
  size_bytes: null,
  run_id: 'run0123456789abcdef0123',
  steps: 2,
  steps_done: 1,
  error: null,
  created_at: '2026-01-01T00:00:00.000Z',
  ended_at: null,
};
const ENDED = { ...RUNNING, ended_at: '2026-01-01T00:01:00.000Z' };
const DONE = { ...ENDED, status: 'done', image: IMAGE, size_bytes: 5, steps_done: 2 };
const CANCELLED = { ...ENDED, status: 'cancelled' };
const FAILED = {
  ...ENDED,
  status: 'failed',
  error: { code: 'build_failed', message: 'line 3: x ended with exit code 9; its last output:\nwhy' },
};
const STEP = { type: 'step', seq: 1, step: 0, text: 'RUN a', cached: true };
const OUTPUT = { type: 'stdout', seq: 2, step: 0, data: 'half a line' };
const NOTE = { type: 'note', seq: 3, text: 'making the image' };
const end = (build: object): object => ({ type: 'end', seq: 4, build });

type Answer = (response: ServerResponse, request: SeenRequest) => void;

/** Answers of a service to the calls of a build, by method and path. */
const ANSWERS: Record<string, Answer> = {
  'POST /v1/images/contexts': (response) => sendJson(response, { status: 201, body: { id: CONTEXT } }),
  'POST /v1/images/build': (response) => sendJson(response, { status: 201, body: RUNNING }),
  [`GET ${BUILD}/log`]: (response) => sendLog(response, [STEP, OUTPUT, NOTE, end(DONE)]),
  [`DELETE ${BUILD}`]: (response) => sendJson(response, { body: CANCELLED }),
  [`DELETE /v1/images/contexts/${CONTEXT}`]: (response) => sendJson(response, { body: { deleted: true } }),
};

function serve(others: Record<string, Answer> = {}): Promise<LoopbackServer> {
  const answers = { ...ANSWERS, ...others };
  return LoopbackServer.start((request, response) => {
    const answer = answers[`${request.method} ${request.url.split('?')[0]}`];
    if (answer === undefined) sendJson(response, { status: 404, body: errorBody('not_found', request.url) });
    else answer(response, request);
  });
}

function sendLog(
  response: ServerResponse,
  events: readonly object[],
  how: 'end' | 'open' | 'break' = 'end',
): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const text = events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join('');
  response.write(text, () => {
    if (how === 'end') response.end();
    if (how === 'break') response.destroy();
  });
}

const calls = (server: LoopbackServer): string[] => server.seen.map(({ method, url }) => `${method} ${url}`);
const nothing = (): void => undefined;

/** A user whose home directory has a directory `app` to build. */
function userWithApp(service: LoopbackServer, files: Record<string, string> = {}): CliUser {
  const user = new CliUser(service.url);
  mkdirSync(join(user.home, 'app'));
  for (const [name, text] of Object.entries({ Dockerfile: 'FROM node:22-slim\n', ...files }))
    writeFileSync(join(user.home, 'app', name), text);
  return user;
}

const BUILD_APP = ['images', 'build', '-t', 'app:1', 'app'];

function namesSent(service: LoopbackServer): string[] {
  const upload = service.seen.find(({ url }) => url === '/v1/images/contexts');
  const list = execFileSync('tar', ['-tf', '-'], { input: upload?.body, encoding: 'utf8' });
  return list.trim().split('\n');
}

test('build uploads the context, says the id at once, shows the log, and prints the image alone', async () => {
  await using service = await serve();
  using user = userWithApp(service);
  const { code, stdout, stderr } = await user.run([...BUILD_APP, '--build-arg', 'A=b']);
  assert.deepEqual([code, stdout], [0, `${IMAGE}\n`], stderr);
  assert.equal(
    stderr,
    `build ${ID}; "coppice images build-log ${ID}" shows this log again\n` +
      '[1] cached: RUN a\nhalf a line\n--> making the image\n',
  );
  assert.deepEqual(calls(service), [
    'POST /v1/images/contexts',
    'POST /v1/images/build',
    `GET ${BUILD}/log?after=0`,
  ]);
  const body = JSON.parse(service.seen[1]?.body.toString() ?? '') as object;
  assert.deepEqual(body, {
    dockerfile: 'FROM node:22-slim\n',
    name: 'app:1',
    build_args: { A: 'b' },
    context: CONTEXT,
    no_cache: false,
    detached: true,
  });
});

test('a step that fails is the error, in one line', async () => {
  await using service = await serve({
    [`GET ${BUILD}/log`]: (response) => sendLog(response, [STEP, end(FAILED)]),
  });
  using user = userWithApp(service);
  const { code, stdout, stderr } = await user.run(BUILD_APP);
  assert.deepEqual([code, stdout], [1, '']);
  assert.doesNotMatch(stderr, /may continue/u);
  assert.match(stderr, /\ncoppice: line 3: x ended with exit code 9; its last output: why\n$/u);
});

test('the .dockerignore beside the Dockerfile with its name takes the place of that of the directory', async () => {
  await using service = await serve();
  const others = { 'b.Dockerfile': 'FROM b:1\n', '.dockerignore': 'kept\n', secret: '', kept: '' };
  using user = userWithApp(service, others);
  await user.run([...BUILD_APP, '-f', 'app/b.Dockerfile']);
  assert.deepEqual(namesSent(service), ['.dockerignore', 'Dockerfile', 'b.Dockerfile', 'secret']);
  service.seen.length = 0;
  writeFileSync(join(user.home, 'app', 'b.Dockerfile.dockerignore'), 'secret\n*ocker*\n');
  const { code, stderr } = await user.run([...BUILD_APP, '-f', 'app/b.Dockerfile']);
  assert.equal(code, 0, stderr);
  assert.deepEqual(namesSent(service), ['kept']);
});

test('faults of local files are reported before any request is sent', async () => {
  await using service = await serve();
  using user = userWithApp(service, {
    empty: ' \n',
    long: 'FROM a:1\n'.padEnd((256 << 10) + 1, '#'),
    broken: 'FROM a:1\n',
    'broken.dockerignore': 'a\n[\n',
  });
  for (const [args, message] of [
    [['missing'], /^coppice: missing is not a directory\n$/u],
    [['app/Dockerfile'], /^coppice: app\/Dockerfile is not a directory\n$/u],
    [['app', '-f', 'app/none'], /^coppice: there is no app\/none: name the Dockerfile with --file\n$/u],
    [['app', '-f', 'app/empty'], /^coppice: app\/empty is empty\n$/u],
    [['app', '-f', 'app/long'], /^coppice: app\/long has 262145 bytes, at most 262144 are allowed: /u],
    [['app', '-f', 'app/broken'], /^coppice: app\/broken\.dockerignore, line 2: "\[" is no pattern: /u],
  ] as const) {
    const { code, stderr } = await user.run(['images', 'build', '-t', 'app:1', ...args]);
    assert.equal(code, 1, stderr);
    assert.match(stderr, message);
  }
  assert.deepEqual(calls(service), []);
});

test('the context of a refused build is removed, and the reason is shown, also if an older service has no such call', async () => {
  const body = errorBody('invalid_request', 'dockerfile: line 1: FRM is not supported');
  const refuse: Answer = (response) => sendJson(response, { status: 400, body });
  const without: Answer = (response) =>
    sendJson(response, { status: 404, body: errorBody('not_found', 'no such route') });
  for (const others of [{}, { [`DELETE /v1/images/contexts/${CONTEXT}`]: without }]) {
    await using service = await serve({ 'POST /v1/images/build': refuse, ...others });
    using user = userWithApp(service);
    const { code, stderr } = await user.run(BUILD_APP);
    assert.deepEqual([code, stderr], [1, 'coppice: dockerfile: line 1: FRM is not supported\n']);
    assert.equal(calls(service).at(-1), `DELETE /v1/images/contexts/${CONTEXT}`);
  }
});

test('a start whose outcome is unknown leaves the context, which the build may use', async () => {
  await using service = await serve({ 'POST /v1/images/build': (response) => response.destroy() });
  using user = userWithApp(service);
  const { code } = await user.run(BUILD_APP);
  assert.equal(code, 1);
  assert.deepEqual(calls(service), ['POST /v1/images/contexts', 'POST /v1/images/build']);
});

test('after lost connections the log continues, without loss or repetition', async () => {
  const logs: Answer[] = [
    (response) => sendLog(response, [STEP], 'break'),
    (response) => sendLog(response, [OUTPUT]),
    (response) => sendLog(response, [NOTE, end(DONE)]),
  ];
  await using service = await serve({
    [`GET ${BUILD}/log`]: (response, request) => logs.shift()?.(response, request),
    [`GET ${BUILD}`]: (response) => sendJson(response, { body: RUNNING }),
  });
  using user = userWithApp(service);
  const { code, stderr } = await user.run(BUILD_APP);
  assert.equal(code, 0, stderr);
  assert.match(stderr, /again\n\[1\] cached: RUN a\nhalf a line\n--> making the image\n$/u);
});

test('a signal cancels the build, waits for its end, and exits with the number of the signal', async () => {
  for (const [signal, expected] of [
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const) {
    await using service = await serve({
      [`GET ${BUILD}/log`]: (response) => sendLog(response, [STEP, OUTPUT], 'open'),
    });
    using user = userWithApp(service);
    const running = user.start(...BUILD_APP);
    await until('the output', () => running.stderr.includes('half a line'));
    running.child.kill(signal);
    const { code, stdout, stderr } = await running.result();
    assert.deepEqual([code, stdout], [expected, '']);
    assert.match(stderr, /half a line\ncoppice: cancelling the build …\ncoppice: build \w+ is cancelled\n$/u);
    assert.equal(calls(service).at(-1), `DELETE ${BUILD}`);
  }
});

test('the build is cancelled when the reader of its log has left', async () => {
  const print: Answer = (response) => {
    sendLog(response, [STEP], 'open');
    let seq = 1;
    const timer = setInterval(() => {
      seq += 1;
      response.write(`data: ${JSON.stringify({ ...OUTPUT, seq })}\n\n`);
    }, 20);
    response.on('close', () => clearInterval(timer));
  };
  await using service = await serve({ [`GET ${BUILD}/log`]: print });
  using user = userWithApp(service);
  // It leaves between two lines, or within one.
  for (const count of ['-n 1', '-c 300']) {
    const { stdout } = await user.runBash(
      `coppice ${BUILD_APP.join(' ')} 2>&1 | head ${count}; printf "\\ncode %s\\n" "\${PIPESTATUS[0]}"`,
    );
    assert.match(stdout, /^build \w+; .*\n[\s\S]*\ncode 141\n$/u);
    assert.equal(calls(service).at(-1), `DELETE ${BUILD}`, count);
  }
});

test('a signal while the build is being started cancels it once its id is known', async () => {
  let answer = nothing;
  await using service = await serve({
    'POST /v1/images/build': (response) => {
      answer = () => sendJson(response, { status: 201, body: RUNNING });
    },
  });
  using user = userWithApp(service);
  const running = user.start(...BUILD_APP, '--detach');
  await until('the start', () => answer !== nothing);
  running.child.kill('SIGTERM');
  await until('the signal', () => running.stderr.includes('waiting for the start'));
  answer();
  const { code, stdout, stderr } = await running.result();
  assert.deepEqual([code, stdout], [143, ''], stderr);
  assert.match(stderr, /is cancelled\n$/u);
  assert.deepEqual(calls(service).slice(1), ['POST /v1/images/build', `DELETE ${BUILD}`]);
});

test('a signal during the upload starts nothing', async () => {
  await using service = await serve({ 'POST /v1/images/contexts': nothing });
  using user = userWithApp(service);
  const running = user.start(...BUILD_APP);
  await until('the upload', () => service.seen.length > 0);
  running.child.kill('SIGINT');
  const { code, stderr } = await running.result();
  assert.deepEqual([code, stderr], [130, '']);
  assert.deepEqual(calls(service), ['POST /v1/images/contexts']);
});

test('a second Ctrl-C leaves at once, and says that the build may continue and how to cancel it', async () => {
  await using service = await serve({
    [`GET ${BUILD}/log`]: (response) => sendLog(response, [STEP], 'open'),
    [`DELETE ${BUILD}`]: nothing,
  });
  using user = userWithApp(service);
  const running = user.start(...BUILD_APP);
  await until('the log', () => running.stderr.includes('RUN a'));
  running.child.kill('SIGINT');
  await until('the cancel', () => calls(service).includes(`DELETE ${BUILD}`));
  running.child.kill('SIGINT');
  const { code, stderr } = await running.result();
  assert.equal(code, 130);
  assert.match(
    stderr,
    new RegExp(`coppice: the build may continue: "coppice images cancel ${ID}" cancels it\\n$`, 'u'),
  );
});

test('a build that cannot be cancelled, or has ended before, is said so', async () => {
  const log: Answer = (response) => sendLog(response, [STEP], 'open');
  for (const [answer, message] of [
    [
      { status: 500, body: errorBody('internal', 'a fault') },
      /could not be cancelled: a fault.*"coppice images cancel build/u,
    ],
    [{ body: DONE }, /build \w+ had ended before: done\n$/u],
  ] as const) {
    const remove: Answer = (response) => sendJson(response, answer);
    await using service = await serve({ [`GET ${BUILD}/log`]: log, [`DELETE ${BUILD}`]: remove });
    using user = userWithApp(service);
    const running = user.start(...BUILD_APP);
    await until('the log', () => running.stderr.includes('RUN a'));
    running.child.kill('SIGINT');
    const { code, stderr } = await running.result();
    assert.equal(code, 130);
    assert.match(stderr, message);
  }
});

test('--detach prints the id and does not wait', async () => {
  await using service = await serve({ [`GET ${BUILD}/log`]: nothing });
  using user = userWithApp(service);
  const { code, stdout, stderr } = await user.run([...BUILD_APP, '--detach']);
  assert.deepEqual([code, stdout], [0, `${ID}\n`], stderr);
  const { stdout: json } = await user.run([...BUILD_APP, '--detach', '--json']);
  assert.equal((JSON.parse(json) as { status: string }).status, 'running');
  assert.equal(
    calls(service).some((call) => call.includes('/log')),
    false,
  );
});

test('builds are listed, their logs shown again, and cancelled', async () => {
  await using service = await serve({
    'GET /v1/images/builds': (response) => sendJson(response, { body: [RUNNING, DONE] }),
  });
  using user = new CliUser(service.url);
  const list = await user.run(['images', 'builds']);
  assert.match(
    list.stdout,
    /^ID +NAME +STATUS +STEPS +AGE +FROM\n\w+ +built\/app:1 +running +1 of 2 +\d+ d +node:22-slim\n/u,
  );
  const log = await user.run(['images', 'build-log', ID]);
  assert.deepEqual(
    [log.code, log.stdout, log.stderr],
    [0, '[1] cached: RUN a\nhalf a line\n--> making the image\n', `build ${ID} is done: ${IMAGE}\n`],
  );
  const lines = (await user.run(['images', 'build-log', '--json', ID])).stdout.trim().split('\n');
  assert.deepEqual(
    lines.map((line) => (JSON.parse(line) as { type: string }).type),
    ['step', 'stdout', 'note', 'end'],
  );
  const cancelled = await user.run(['images', 'cancel', ID]);
  assert.deepEqual([cancelled.code, cancelled.stdout], [0, `build ${ID} is cancelled\n`]);
  const { stdout } = await user.run(['complete', '--', 'images', 'cancel', '']);
  assert.match(stdout, new RegExp(ID, 'u'));
});

test('a build that failed shows its reason and its code, and its log exits with 1', async () => {
  await using service = await serve({
    'GET /v1/images/builds': (response) => sendJson(response, { body: [FAILED, RUNNING] }),
    [`GET ${BUILD}/log`]: (response) => sendLog(response, [STEP, end(FAILED)]),
    [`DELETE ${BUILD}`]: (response) => sendJson(response, { body: FAILED }),
  });
  using user = new CliUser(service.url);
  const ended = `build ${ID} is failed: line 3: x ended with exit code 9; its last output: why\n`;
  const log = await user.run(['images', 'build-log', ID]);
  assert.deepEqual([log.code, log.stdout, log.stderr], [1, '[1] cached: RUN a\n', ended]);
  const json = await user.run(['images', 'build-log', '--json', ID]);
  assert.deepEqual([json.code, json.stderr], [1, ended]);
  const list = await user.run(['images', 'builds']);
  assert.match(list.stdout, / failed: build_failed +1 of 2 .*\n.* running +1 of 2 /u);
  const late = await user.run(['images', 'cancel', ID]);
  assert.deepEqual([late.code, late.stdout], [0, ended], late.stderr);
});

test('the log of a cancelled build exits with 1', async () => {
  await using service = await serve({
    [`GET ${BUILD}/log`]: (response) => sendLog(response, [end(CANCELLED)]),
  });
  using user = new CliUser(service.url);
  const { code, stderr } = await user.run(['images', 'build-log', ID]);
  assert.deepEqual([code, stderr], [1, `build ${ID} is cancelled\n`]);
});

test('a file name that is not UTF-8 is the error, and no build starts', async () => {
  await using service = await serve();
  using user = userWithApp(service);
  writeFileSync(Buffer.from(`${user.home}/app/caf\u00e9`, 'latin1'), '');
  const { code, stderr } = await user.run(BUILD_APP);
  assert.equal(code, 1);
  assert.match(stderr, /^coppice: the name of app\/caf\\xe9 is not UTF-8: rename it, or leave it out/u);
  assert.equal(calls(service).includes('POST /v1/images/build'), false);
});

test('if the log cannot be read, it is said that the build may continue and how to cancel it', async () => {
  const left = `coppice: the build may continue: "coppice images cancel ${ID}" cancels it\ncoppice: `;
  for (const [answer, reason] of [
    [
      (response) =>
        sendJson(response, {
          status: 429,
          headers: { 'retry-after': '60' },
          body: errorBody('too_many_streams', 'at most 4 logs at a time'),
        }),
      'at most 4 logs at a time',
    ],
    [(response) => sendLog(response, [STEP, { type: 'note', seq: 2 }]), 'invalid log of a build'],
  ] satisfies [Answer, string][]) {
    await using service = await serve({ [`GET ${BUILD}/log`]: answer });
    using user = userWithApp(service);
    const { code, stdout, stderr } = await user.run(BUILD_APP);
    assert.deepEqual([code, stdout], [1, '']);
    assert.ok(stderr.includes(left), stderr);
    assert.ok(stderr.includes(reason), stderr);
    assert.equal(calls(service).at(-1), `GET ${BUILD}/log?after=0`);
  }
});

test('each line of a note is a line, and none can pass as a step', async () => {
  const note = {
    ...NOTE,
    text: 'line 2: CMD has no effect\r\nline 3: EXPOSE has no effect\n[2] RUN forged\n',
  };
  await using service = await serve({
    [`GET ${BUILD}/log`]: (response) => sendLog(response, [note, end(DONE)]),
  });
  using user = new CliUser(service.url);
  const { stdout } = await user.run(['images', 'build-log', ID]);
  assert.equal(
    stdout,
    '--> line 2: CMD has no effect\n-->   line 3: EXPOSE has no effect\n-->   [2] RUN forged\n',
  );
});

test('neither the Dockerfile nor what its programs print controls the terminal', async () => {
  const hostile = '\u001b]0;x\u0007\u001b[2J\u202e';
  const events = [
    { ...STEP, text: `RUN ${hostile}\nforged` },
    { ...OUTPUT, data: `a\tb\r\n${hostile}c\n` },
    { ...NOTE, text: hostile },
    end(DONE),
  ];
  await using service = await serve({ [`GET ${BUILD}/log`]: (response) => sendLog(response, events) });
  using user = userWithApp(service);
  const shown = String.raw`\u{1b}]0;x\u{7}\u{1b}[2J\u{202e}`;
  const expected = `[1] cached: RUN ${shown}\\u{a}forged\na\tb\r\n${shown}c\n--> ${shown}\n`;
  assert.ok((await user.run(BUILD_APP)).stderr.endsWith(expected));
  assert.equal((await user.run(['images', 'build-log', ID])).stdout, expected);
});
