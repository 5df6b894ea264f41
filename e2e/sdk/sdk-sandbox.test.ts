import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { Coppice, CoppiceError, type Sandbox } from '../../packages/sdk/src/index.ts';
import { connect, SMALL } from '../fixtures/api/client.ts';
import { API_KEY } from '../fixtures/service/service.ts';
import { shared } from '../fixtures/service/shared.ts';

describe('a sandbox through the client', () => {
  let sandbox: Sandbox;
  before(async () => {
    sandbox = await (await connect()).sandboxes.create(SMALL);
  });
  after(async () => {
    await sandbox.destroy();
  });

  it('runs commands with exit code, stdin, env and cwd', async () => {
    assert.deepEqual(await sandbox.exec('echo out; echo err >&2; exit 7'), {
      exitCode: 7,
      stdout: 'out\n',
      stderr: 'err\n',
      timedOut: false,
      truncated: false,
    });
    const options = { stdin: 'as given', env: { WHO: 'käfer $HOME' }, cwd: '/usr', user: 'nobody' };
    const { stdout } = await sandbox.exec('id -un; pwd; echo "$WHO"; cat', options);
    assert.equal(stdout, 'nobody\n/usr\nkäfer $HOME\nas given');
  });

  it('ends a command at its timeout', async () => {
    const started = performance.now();
    const { exitCode, timedOut } = await sandbox.exec('sleep 300', { timeout: 1 });
    assert.deepEqual([exitCode, timedOut], [124, true]);
    assert.ok(performance.now() - started < 5000);
  });

  it('stops waiting for a command when it is aborted, and the command continues', async () => {
    const { service } = await shared();
    const controller = new AbortController();
    const reason = new Error('enough');
    const command = 'touch /tmp/begun; until [ -e /tmp/go ]; do sleep 0.1; done; touch /tmp/ended';
    const exec = sandbox.exec(command, { signal: controller.signal });
    const rejected = assert.rejects(exec, (error) => error === reason);
    const waitForFile = (file: string) =>
      service.waitFor(file, 10_000, async () =>
        (await sandbox.listFiles('/tmp')).some(({ name }) => name === file),
      );
    await waitForFile('begun');
    controller.abort(reason);
    await rejected;
    await sandbox.upload('/tmp/go', '');
    await waitForFile('ended');
  });

  it('uploads and downloads text, bytes and streams unchanged', async () => {
    const text = '\uFEFFžluťoučký\r\nkůň\u0000🐎';
    const size = Buffer.byteLength(text);
    assert.deepEqual(await sandbox.upload('/workspace/a/text', text), { path: '/workspace/a/text', size });
    assert.equal(await sandbox.download('/workspace/a/text'), text);

    const bytes = new Uint8Array(randomBytes(3_000_000));
    await sandbox.upload('/workspace/bytes', bytes, { mode: 0o600 });
    assert.ok(Buffer.from(bytes).equals(await sandbox.downloadBytes('/workspace/bytes')));
    await assert.rejects(sandbox.downloadBytes('/workspace/bytes', { maxBytes: 1000 }), {
      code: 'response_too_large',
    });

    const stream = await sandbox.downloadStream('/workspace/bytes');
    await sandbox.upload('/workspace/copy', stream);
    assert.equal((await sandbox.exec('cmp /workspace/bytes /workspace/copy')).exitCode, 0);
  });

  it('lists files', async () => {
    await sandbox.exec(
      'mkdir -p /tmp/l/dir && cd /tmp/l && printf abc > file && chmod 640 file && ln -s file to',
    );
    const entries = await sandbox.listFiles('/tmp/l');
    assert.deepEqual(
      entries.map(({ name, type, target }) => [name, type, target]),
      [
        ['dir', 'dir', null],
        ['file', 'file', null],
        ['to', 'symlink', 'file'],
      ],
    );
    const { mtime, ...file } = entries[1]!;
    assert.deepEqual(file, {
      name: 'file',
      path: '/tmp/l/file',
      type: 'file',
      size: 3,
      mode: '0640',
      target: null,
    });
    assert.ok(Math.abs(Date.parse(mtime) - Date.now()) < 60_000);
  });

  it('reports a failed call with status, code, request id and the first 200 bytes of the answer', async () => {
    const { service } = await shared();
    const path = `/${'long-name/'.repeat(60)}`;
    let body = '';
    const client = new Coppice({
      baseUrl: service.address,
      apiKey: API_KEY,
      fetch: async (url, init) => {
        const response = await fetch(url, init);
        if (!response.ok) body = await response.clone().text();
        return response;
      },
    });
    const same = (await client.sandboxes.get(sandbox.id))!;
    await assert.rejects(same.download(path), (error) => {
      assert.ok(error instanceof CoppiceError && body.length > 200);
      assert.deepEqual([error.status, error.code], [404, 'file_not_found']);
      assert.ok(error.message.endsWith(`: ${body.slice(0, 200)}`), error.message);
      assert.ok(body.includes(`"${error.requestId}"`), body);
      return true;
    });
  });
});
