import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { shared, NODE_IMAGE } from '../fixtures/service/shared.ts';
import type { Api, ExecAnswer } from '../fixtures/api/api.ts';

describe('exec', () => {
  let api: Api;
  let id: string;
  before(async () => {
    ({ api } = await shared());
    ({ id } = await api.create({ image: NODE_IMAGE }));
  });
  after(async () => {
    await api.destroy(id);
  });
  const exec = (command: string, more: Record<string, unknown> = {}): Promise<ExecAnswer> =>
    api.exec(id, command, more);

  it('returns exit code, output and errors separately', async () => {
    const answer = await exec('echo out; echo err >&2; exit 3');
    assert.deepEqual([answer.exit_code, answer.stdout, answer.stderr], [3, 'out\n', 'err\n']);
  });

  it('runs with cwd, env, user and stdin', async () => {
    assert.equal((await exec('pwd', { cwd: '/usr/lib' })).stdout, '/usr/lib\n');
    assert.equal(
      (await exec('echo "$GREETING"', { env: { GREETING: 'hello  $HOME' } })).stdout,
      'hello  $HOME\n',
    );
    assert.equal(
      (await exec('id -un; id -u; echo $HOME', { user: 'node' })).stdout,
      'node\n1000\n/home/node\n',
    );
    assert.equal((await exec('wc -c', { stdin: 'x'.repeat(200_000) })).stdout.trim(), '200000');
    assert.equal((await exec('cat')).stdout, '', 'without stdin the command reads nothing');
  });

  it('reports death by a signal as 128 + n', async () => {
    assert.equal((await exec('kill -9 $$')).exit_code, 137);
  });

  it('kills the whole process group at the timeout, even if it ignores SIGTERM', async () => {
    const started = performance.now();
    const answer = await exec('trap "" TERM; sleep 300 & echo started; wait', { timeout: 1 });
    assert.deepEqual([answer.exit_code, answer.timed_out, answer.stdout], [124, true, 'started\n']);
    assert.ok(performance.now() - started < 4000);
    const left = await exec("ps -eo args | grep -c '^sleep 300' || true");
    assert.equal(left.stdout.trim(), '0');
  });

  it('does not wait for a background child that holds its output, and does not kill it', async () => {
    const started = performance.now();
    const answer = await exec('(while :; do echo noise; sleep 0.2; done) & echo "pid $!"');
    assert.ok(performance.now() - started < 5000);
    assert.match(answer.stdout, /pid \d+/u);
    const pid = /pid (\d+)/u.exec(answer.stdout)?.[1];
    const alive = await exec(`sleep 1; kill -0 ${pid} && echo alive; kill -9 ${pid}`);
    assert.equal(alive.stdout, 'alive\n');
  });

  it('caps each output stream and says so', async () => {
    const answer = await exec('head -c 20000000 /dev/zero | tr "\\0" x; echo done >&2', { timeout: 120 });
    assert.equal(answer.stdout.length, 16 * 1024 * 1024);
    assert.deepEqual([answer.truncated, answer.exit_code, answer.stderr], [true, 0, 'done\n']);
  });

  it('ends an endless flood at its timeout', async () => {
    // Long enough to produce more than the service keeps, even on a slow machine.
    const answer = await exec('cat /dev/zero', { timeout: 6 });
    assert.deepEqual([answer.exit_code, answer.timed_out, answer.truncated], [124, true, true]);
  });

  it('lets the command finish when the client disconnects', async () => {
    const leave = new AbortController();
    const call = api.fetch('POST', `/v1/runs/${id}/exec`, {
      body: { command: 'sleep 1; touch /tmp/went-on' },
      signal: leave.signal,
    });
    const response = await call;
    assert.equal(response.status, 200, 'the status line comes before the command ends');
    leave.abort();
    const seen = await exec(
      'for i in $(seq 50); do [ -e /tmp/went-on ] && echo yes && exit; sleep 0.1; done',
    );
    assert.equal(seen.stdout, 'yes\n');
  });

  it('is not delayed by a long-running command', async () => {
    let isOver = false;
    const long = exec('sleep 5; echo long').finally(() => (isOver = true));
    await exec('true');
    assert.ok(!isOver);
    assert.equal((await long).stdout, 'long\n');
  });

  it('replaces output that is not UTF-8 without failing', async () => {
    assert.equal((await exec("printf 'a\\377b'")).stdout, 'a\u{fffd}b');
  });

  it('refuses invalid commands and names the field', async () => {
    const cases: [Record<string, unknown>, string][] = [
      [{}, 'command'],
      [{ command: '' }, 'command'],
      [{ command: 7 }, 'command'],
      [{ command: 'a\0b' }, 'command'],
      [{ command: 'true', timeout: 0 }, 'timeout'],
      [{ command: 'true', timeout: 1e9 }, 'timeout'],
      [{ command: 'true', timeout: '5' }, 'timeout'],
      [{ command: 'true', env: { 'A=B': 'x' } }, 'env'],
      [{ command: 'true', user: 'nobody-here' }, 'user'],
      [{ command: 'true', cwd: '/no/such/place' }, 'cwd'],
      [{ command: 'true', shell: 'zsh' }, 'shell'],
    ];
    for (const [body, field] of cases) {
      const answer = await api.call('POST', `/v1/runs/${id}/exec`, { body });
      assert.equal(answer.status, 400, `${JSON.stringify(body)}: ${answer.text}`);
      assert.ok(answer.text.includes(field), `${answer.text} does not name ${field}`);
    }
  });
});
