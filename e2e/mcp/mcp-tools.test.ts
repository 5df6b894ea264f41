/** The MCP tools on real sandboxes, with the official client: over standard input and output, and over HTTP. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Coppice } from '../../packages/sdk/src/index.ts';
import { findFreePort } from '../../packages/server/src/control/testing/free-port.ts';
import { Person } from '../fixtures/accounts/person.ts';
import { McpClient, type McpOptions } from '../fixtures/mcp/mcp-client.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import { API_KEY, type Service } from '../fixtures/service/service.ts';

const SMALL = { image: 'coppice/base:1', memMiB: 256, timeout: 0 };
const WAIT_MS = 60_000;
const BIG_BYTES = 8_000_000;

let service: Service;
let client: Coppice;
before(async () => {
  // Clients find it again after a restart.
  const env = { COPPICE_LISTEN: `127.0.0.1:${await findFreePort()}` };
  service = await startPrepared({ instance: 16, env });
  client = new Coppice({ baseUrl: service.address, apiKey: API_KEY });
});
after(() => service[Symbol.asyncDispose]());

/** Waits until the guest runs a process with this argument, or none. */
async function waitForProcess(sandboxId: string, argument: string, isThere: boolean): Promise<void> {
  const sandbox = await client.sandboxes.get(sandboxId);
  assert.ok(sandbox !== null);
  // The brackets keep the pattern from finding the command that looks for it.
  const pattern = `[${argument[0]}]${argument.slice(1)}`;
  await service.waitFor(`${argument}: ${isThere ? 'start' : 'end'}`, WAIT_MS, async () => {
    const { exitCode } = await sandbox.exec(`pgrep -f '${pattern}'`);
    return (exitCode === 0) === isThere;
  });
}

const WAYS = {
  'standard input and output': (options?: McpOptions) => McpClient.stdio(service, options),
  HTTP: (options?: McpOptions) => McpClient.http(service, options),
};

for (const [way, connect] of Object.entries(WAYS))
  describe(`over ${way}`, () => {
    let mcp: McpClient;
    let sandboxId = '';
    before(async () => {
      mcp = await connect();
      ({ sandboxId } = (await mcp.ask('create_sandbox', { ...SMALL, labels: { way: 'mcp' } })) as {
        sandboxId: string;
      });
    });
    after(() => mcp[Symbol.asyncDispose]());

    test('a command gives its output and its exit code', async () => {
      const value = await mcp.ask('exec', {
        sandboxId,
        command: 'cat; pwd; echo "$WHO" >&2; exit 7',
        stdin: 'in ',
        cwd: '/usr',
        env: { WHO: 'käfer' },
      });
      assert.deepEqual(value, {
        exitCode: 7,
        timedOut: false,
        stdout: 'in /usr\n',
        stderr: 'käfer\n',
        stdoutBytes: 8,
        stderrBytes: 7,
        truncated: false,
      });
      const binary = await mcp.ask('exec', { sandboxId, command: "printf '\\377\\376\\200'" });
      assert.deepEqual([binary['stdoutBytes'], binary['stdout']], [3, '\uFFFD'.repeat(3)]);
      const late = await mcp.ask('exec', { sandboxId, command: 'sleep 60', timeout: 1 });
      assert.deepEqual([late['exitCode'], late['timedOut']], [124, true]);
    });

    test('big output is cut in the middle, and read from a file in parts', async () => {
      const seen: number[] = [];
      const command = `head -c ${BIG_BYTES} /dev/zero | tr '\\0' x; echo end`;
      const value = await mcp.ask(
        'exec',
        { sandboxId, command, timeout: 120, maxOutput: 1000 },
        { onProgress: (bytes) => void seen.push(bytes) },
      );
      const text = String(value['stdout']);
      assert.deepEqual([value['stdoutBytes'], value['truncated']], [BIG_BYTES + 4, true]);
      assert.ok(text.length < 1200 && text.endsWith('xxxend\n'), text.slice(-50));
      assert.match(text, /\n\[… \d+ of 8000004 characters are left out here …\]\n/u);
      assert.ok(
        seen.length > 0 && seen.every((bytes, index) => bytes > (seen[index - 1] ?? 0)),
        String(seen),
      );

      await mcp.ask('exec', { sandboxId, command: 'seq 1 30000 > /tmp/numbers', timeout: 60 });
      let read = '';
      for (let offset: number | null = 0; offset !== null;) {
        const part = await mcp.ask('read_file', { sandboxId, path: '/tmp/numbers', offset });
        read += String(part['content']);
        offset = part['nextOffset'] as number | null;
      }
      const behind = await mcp.ask('read_file', { sandboxId, path: '/tmp/numbers', offset: 1_000_000 });
      assert.deepEqual(behind, { content: '', encoding: 'utf8', bytes: 0, nextOffset: null });
      assert.equal(read, Array.from({ length: 30_000 }, (_, index) => `${index + 1}\n`).join(''));
    });

    test('files are written, read and listed', async () => {
      const path = '/workspace/new/run.sh';
      const content = '#!/bin/sh\necho "grün 🌱"\n';
      assert.deepEqual(await mcp.ask('write_file', { sandboxId, path, content, mode: '755' }), {
        path,
        bytes: Buffer.byteLength(content),
      });
      assert.equal((await mcp.ask('exec', { sandboxId, command: path }))['stdout'], 'grün 🌱\n');
      const { entries } = (await mcp.ask('list_files', { sandboxId, path: '/workspace/new' })) as {
        entries: { name: string; mode: string }[];
      };
      assert.deepEqual(
        entries.map(({ name, mode }) => [name, mode]),
        [['run.sh', '0755']],
      );
      const bytes = Buffer.from([0, 0xff, 1]).toString('base64');
      await mcp.ask('write_file', { sandboxId, path: '/tmp/b', content: bytes, encoding: 'base64' });
      const back = await mcp.ask('read_file', { sandboxId, path: '/tmp/b' });
      assert.deepEqual(back, { content: bytes, encoding: 'base64', bytes: 3, nextOffset: null });
      const missing = await mcp.call('read_file', { sandboxId, path: '/none' });
      assert.ok(missing.isError && /^file_not_found: .*\n.*list_files/u.test(missing.text), missing.text);
      const broken = { sandboxId, path: '/tmp/b', content: 'no base64!', encoding: 'base64' };
      assert.equal((await mcp.call('write_file', broken)).isError, true);
    });

    test('a cancelled call kills the command in the guest', async () => {
      const controller = new AbortController();
      const running = mcp.call(
        'exec',
        { sandboxId, command: 'sleep 4711', timeout: 3600 },
        { signal: controller.signal },
      );
      const rejected = assert.rejects(running);
      await waitForProcess(sandboxId, 'sleep 4711', true);
      controller.abort(new Error('enough'));
      await rejected;
      await waitForProcess(sandboxId, 'sleep 4711', false);
    });

    test('a client that ends kills its command', async () => {
      const other = await connect();
      const rejected = assert.rejects(
        other.call('exec', { sandboxId, command: 'sleep 4712', timeout: 3600 }),
      );
      await waitForProcess(sandboxId, 'sleep 4712', true);
      await other[Symbol.asyncDispose]();
      await rejected;
      await waitForProcess(sandboxId, 'sleep 4712', false);
    });

    test('the URL of a port is served', async () => {
      const command = 'cd /tmp && echo served > page && (python3 -m http.server 8000 >/tmp/log 2>&1 &)';
      await mcp.ask('exec', { sandboxId, command });
      const { url } = await mcp.ask('url', { sandboxId, port: 8000, path: '/page' });
      const headers = { authorization: `Bearer ${API_KEY}` };
      await service.waitFor('the port', WAIT_MS, async () => {
        const answer = await fetch(String(url), { headers });
        return answer.status === 200 && (await answer.text()) === 'served\n';
      });
    });

    test('copies have the state of their source: fork, checkpoint and restore', async () => {
      await mcp.ask('exec', { sandboxId, command: 'echo 1 > /tmp/state' });
      const { children, failures } = (await mcp.ask('fork', { sandboxId, count: 2 })) as {
        children: { sandboxId: string; parentId: string }[];
        failures: string[];
      };
      assert.deepEqual([children.map(({ parentId }) => parentId), failures], [[sandboxId, sandboxId], []]);
      const { snapshotId } = await mcp.ask('checkpoint', { sandboxId, name: 'before' });
      await mcp.ask('exec', { sandboxId, command: 'echo 2 > /tmp/state' });
      const restored = await mcp.ask('restore', { snapshotId, labels: { restored: 'yes' } });
      for (const id of [...children.map((child) => child.sandboxId), String(restored['sandboxId'])]) {
        assert.equal((await mcp.ask('exec', { sandboxId: id, command: 'cat /tmp/state' }))['stdout'], '1\n');
        assert.equal((await mcp.ask('destroy_sandbox', { sandboxId: id }))['status'], 'destroyed');
      }
      await client.snapshots.delete(String(snapshotId));
    });

    test('a hibernated sandbox refuses commands with the next step, and resumes', async () => {
      for (let time = 0; time < 2; time += 1)
        assert.equal((await mcp.ask('hibernate', { sandboxId }))['status'], 'hibernated');
      const refused = await mcp.call('exec', { sandboxId, command: 'id' });
      assert.ok(refused.isError && /^invalid_state: .*\n.*resume/u.test(refused.text), refused.text);
      for (let time = 0; time < 2; time += 1)
        assert.equal((await mcp.ask('resume', { sandboxId }))['status'], 'running');
      assert.equal((await mcp.ask('exec', { sandboxId, command: 'cat /tmp/state' }))['stdout'], '2\n');
    });

    test('a destroyed sandbox is no longer listed, and is an error to use', async () => {
      const list = async () => JSON.stringify(await mcp.ask('list_sandboxes', { labels: { way: 'mcp' } }));
      assert.ok((await list()).includes(sandboxId));
      const usage = await mcp.ask('destroy_sandbox', { sandboxId });
      assert.ok(Number(usage['uptimeMs']) > 0 && Number(usage['cpuMs']) > 0, JSON.stringify(usage));
      assert.ok(!(await list()).includes(sandboxId));
      for (const [tool, args] of [
        ['hibernate', { sandboxId }],
        ['exec', { sandboxId, command: 'id' }],
      ] as const) {
        const { isError, text } = await mcp.call(tool, args);
        assert.ok(isError && text.includes('create_sandbox'), text);
      }
      const again = await mcp.ask('destroy_sandbox', { sandboxId });
      assert.deepEqual([again['status'], again['cpuMs']], ['destroyed', null]);
    });
  });

test('with --destroy-on-exit the sandboxes of a session end with it', async () => {
  const kept = await McpClient.stdio(service);
  const { sandboxId: keptId } = await kept.ask('create_sandbox', SMALL);
  await kept[Symbol.asyncDispose]();
  const mcp = await McpClient.stdio(service, { args: ['--destroy-on-exit'] });
  const { sandboxId } = await mcp.ask('create_sandbox', SMALL);
  const { children } = (await mcp.ask('fork', { sandboxId: keptId })) as {
    children: { sandboxId: string }[];
  };
  await mcp[Symbol.asyncDispose]();
  for (const id of [String(sandboxId), ...children.map((child) => child.sandboxId)])
    await service.waitFor(`the end of ${id}`, WAIT_MS, async () => {
      return (await client.sandboxes.get(id))?.status === 'destroyed';
    });
  const sandbox = await client.sandboxes.get(String(keptId));
  assert.equal(sandbox?.status, 'running');
  await sandbox.destroy();
});

for (const [way, connect] of Object.entries(WAYS))
  test(`over ${way}, a client that ends during a create leaves no sandbox`, async () => {
    const mcp = await connect();
    const label = `left-${way.slice(0, 4)}`;
    const rejected = assert.rejects(mcp.call('create_sandbox', { ...SMALL, labels: { label } }));
    const list = () => client.sandboxes.list({ labels: { label } });
    await service.waitFor('the create', WAIT_MS, async () => (await list()).length === 1);
    await mcp[Symbol.asyncDispose]();
    await rejected;
    await service.waitFor('the end of the sandbox', WAIT_MS, async () => (await list()).length === 0);
  });

test('a restart of control during a command is an error that says what to do, and the next call works', async () => {
  await using mcp = await McpClient.stdio(service);
  const { sandboxId } = await mcp.ask('create_sandbox', SMALL);
  const id = String(sandboxId);
  const running = mcp.call('exec', { sandboxId, command: 'sleep 4713', timeout: 3600 });
  await waitForProcess(id, 'sleep 4713', true);
  await service.killRole('control');
  const { isError, text } = await running;
  assert.ok(isError && /^connection_failed: .*\n.*has been killed/u.test(text), text);
  await waitForProcess(id, 'sleep 4713', false);
  assert.equal((await mcp.ask('exec', { sandboxId, command: 'echo on' }))['stdout'], 'on\n');
  await mcp.ask('destroy_sandbox', { sandboxId });
});

for (const [way, connect] of Object.entries(WAYS))
  test(`over ${way}, a revoked key ends the command that runs, and the error says who can help`, async () => {
    const operator = await Person.operator(service);
    const { id: keyId, key = '' } = await operator.ask('POST', `${operator.team}/keys`, { name: 'mcp' });
    await using mcp = await connect({ key });
    const { sandboxId } = await mcp.ask('create_sandbox', SMALL);
    const running = mcp.call('exec', { sandboxId, command: 'sleep 4714', timeout: 3600 });
    await waitForProcess(String(sandboxId), 'sleep 4714', true);
    await operator.ask('DELETE', `${operator.team}/keys/${keyId}`);
    const { isError, text } = await running;
    assert.ok(isError && /^unauthorized: .*\n.*valid key/u.test(text), text);
    await waitForProcess(String(sandboxId), 'sleep 4714', false);
    await (await client.sandboxes.get(String(sandboxId)))?.destroy();
  });
