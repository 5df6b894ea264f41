/** The programs of the folder examples, run as their readers run them. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { Coppice } from '../../packages/sdk/src/index.ts';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import { connect } from '../fixtures/api/client.ts';
import { call } from '../fixtures/api/http-call.ts';
import { shows } from '../fixtures/cli/published-cli.ts';
import { ExampleProject } from '../fixtures/examples/example-project.ts';
import { MessagesServer } from '../fixtures/examples/messages-server.ts';
import { shared } from '../fixtures/service/shared.ts';

const TIMEOUT_MS = 60_000;
const INTERRUPTED = 130;
const MODEL_KEY = 'sk-ant-of-the-model';

describe('the example', () => {
  let client: Coppice;
  let address = '';
  let project: ExampleProject;
  before(async () => {
    client = await connect();
    ({ address } = (await shared()).service);
    project = await ExampleProject.make(address);
  });
  after(() => project[Symbol.dispose]());

  const listSandboxes = async (example: string): Promise<string[]> =>
    (await client.sandboxes.list({ labels: { example } })).map(({ id }) => id);
  const assertNoSandbox = async (example: string): Promise<void> =>
    assert.deepEqual(await listSandboxes(example), []);

  test('coding-agent repairs a project with a scripted model, step by step', async () => {
    const { code, stdout, stderr } = await project.start('coding-agent/coding-agent.ts').result();
    assert.deepEqual([code, stderr], [0, ''], stdout);
    const steps = [
      'model: I run the tests first.',
      'FAILED (failures=2)',
      'model: Some tests fail.',
      'model: The function keeps punctuation.',
      'write_file {"path":"slug.py"}',
      'FAILED (failures=1)',
      'model: Accents still split words.',
      '    OK',
      'model: All tests pass.',
      '+    plain = unicodedata.normalize(',
      'The tests pass.',
    ];
    let from = 0;
    for (const step of steps) {
      const at = stdout.indexOf(step, from);
      assert.ok(at >= from, `${step} is missing in:\n${stdout.slice(from)}`);
      from = at + step.length;
    }
    await assertNoSandbox('coding-agent');
  });

  test('coding-agent talks to the API of a model, whose key no program in the sandbox sees', async () => {
    const turns = [
      {
        text: 'I look for a key.',
        calls: [
          {
            name: 'exec',
            input: { command: 'echo "[$ANTHROPIC_API_KEY] [$ANTHROPIC_BASE_URL]"; env; cat /proc/*/environ' },
          },
          { name: 'read_file', input: { path: 'absent.py' } },
          { name: 'exec', input: { comand: 'ls' } },
        ],
      },
      ...(JSON.parse(
        readFileSync(join(project.directory, 'examples/coding-agent/turns.json'), 'utf8'),
      ) as []),
    ];
    await using server = await MessagesServer.start(MODEL_KEY, turns);
    // The tests pass from the beginning: the script then has nothing to repair.
    const path = join(project.directory, 'examples/coding-agent/project/test_slug.py');
    const tests = readFileSync(path, 'utf8');
    writeFileSync(path, tests.slice(0, tests.indexOf('    def test_punctuation')));
    const running = project.start('coding-agent/coding-agent.ts', ['--model', 'any', '--grant-key'], {
      ANTHROPIC_API_KEY: MODEL_KEY,
      ANTHROPIC_BASE_URL: server.baseUrl,
    });
    const { code, stdout, stderr } = await running.result();
    writeFileSync(path, tests);
    assert.deepEqual([code, stderr], [0, ''], stdout);
    assert.equal(server.requests, 4);
    const [environment = '', absent = '', misspelt = ''] = server.results;
    assert.match(environment, /\[\S+\] \[http:\/\/169\.254\.169\.254:\d+\/proxy\/anthropic\]/u);
    assert.ok(!environment.includes(MODEL_KEY));
    assert.match(absent, /file_not_found/u);
    assert.match(misspelt, /command must be a text/u);
    assert.match(stdout, /model: All tests pass\.\n\nThe tests pass\.\n$/u);
    await assertNoSandbox('coding-agent');
  });

  test('best-of-n scores all candidates, keeps the best and destroys the others', async () => {
    const { code, stdout, stderr } = await project.start('best-of-n/best-of-n.ts', ['--keep']).result();
    assert.deepEqual([code, stderr], [0, ''], stdout);
    const id = /^kept: (\S+)$/mu.exec(stdout)?.[1];
    await using best = await client.sandboxes.get(String(id));
    assert.deepEqual(await listSandboxes('best-of-n'), [id]);
    assert.equal((await best?.exec('python3 -m unittest'))?.exitCode, 0);
    const [summary = '', diff = ''] = stdout.split('best: full-match\n');
    assert.equal(
      summary,
      [
        'before: 2 of 4 tests pass',
        'forked 4 sandboxes',
        'find-all: 2 of 4 tests pass',
        'full-match: 4 of 4 tests pass',
        'old-version: does not apply (error: patch failed: duration.py:4)',
        'split: 0 of 1 tests pass',
        '',
      ].join('\n'),
    );
    assert.match(diff, /^\+ {4}if re\.fullmatch\(/mu);
  });

  test('best-of-n leaves no sandbox when Ctrl-C interrupts the candidates', async () => {
    const running = project.start('best-of-n/best-of-n.ts', ['--keep']);
    await shows(running, /^forked 4 sandboxes$/mu);
    running.child.kill('SIGINT');
    const { code, stdout, stderr } = await running.result();
    assert.deepEqual([code, stderr], [INTERRUPTED, 'best-of-n: interrupted\n']);
    assert.doesNotMatch(stdout, /best/u);
    await assertNoSandbox('best-of-n');
  });

  test('best-of-n leaves no sandbox when Ctrl-C interrupts the create', async () => {
    const running = project.start('best-of-n/best-of-n.ts');
    await pollUntil({ step: 'the record', timeoutMs: TIMEOUT_MS, intervalMs: 20 }, async () =>
      (await listSandboxes('best-of-n')).length === 1 ? true : undefined,
    );
    running.child.kill('SIGINT');
    const { code, stdout } = await running.result();
    assert.deepEqual([code, stdout], [INTERRUPTED, '']);
    await assertNoSandbox('best-of-n');
  });

  test('web-preview shows a page and its change through a link, until Ctrl-C', async () => {
    const running = project.start('web-preview/web-preview.ts');
    await shows(running, /until you press Ctrl-C\.$/mu);
    const link = new URL(/^link: (\S+)$/mu.exec(running.stdout)?.[1] ?? '');
    assert.match(link.hostname, /^8000-run\w+\.localhost$/u);
    const { host } = link;
    const opened = await call(address, { path: `${link.pathname}${link.search}`, headers: { host } });
    const cookie = opened.headers['set-cookie']?.[0]?.split(';', 1)[0] ?? '';
    const see = async (): Promise<number> =>
      (await call(address, { path: '/', headers: { host, cookie } })).status;
    assert.equal(await see(), 200);
    running.child.kill('SIGINT');
    const { code, stdout, stderr } = await running.result();
    assert.deepEqual([code, stderr], [0, ''], stdout);
    assert.deepEqual(stdout.split('\n').slice(1, 3), [
      'page: 200 Hello from a microVM',
      'page: 200 Changed in a microVM',
    ]);
    assert.equal(await see(), 409);
    await assertNoSandbox('web-preview');
  });

  test('notebook keeps its state from cell to cell, after an interrupt, and beside a fork', async () => {
    const { code, stdout, stderr } = await project.start('notebook/main.py').result();
    assert.deepEqual([code, stderr], [0, ''], stdout);
    const lines = stdout.trimEnd().split('\n');
    assert.match(lines.splice(6, 1)[0] ?? '', /^Out\[3\]: image\/svg\+xml: 2\d\d characters$/u);
    assert.match(lines.splice(5, 1)[0] ?? '', /^Out\[3\]: text\/plain: <__main__\.Chart object at \w+>$/u);
    assert.deepEqual(lines, [
      'In [1]: prices = [3, 4, 5]',
      `In [2]: print(len(prices), 'prices') …`,
      '3 prices',
      'Out[2]: text/plain: 12',
      'In [3]: class Chart: …',
      'In [4]: prices[3]',
      'Out[4]: IndexError: list index out of range',
      'In [5]: while True: pass',
      'Out[5]: KeyboardInterrupt: ',
      'What if [6]: prices = [2 * price for price in prices] …',
      'Out[6]: text/plain: 24',
      'In [6]: sum(prices)',
      'Out[6]: text/plain: 12',
    ]);
    await assertNoSandbox('notebook');
  });
});
