import assert from 'node:assert/strict';
import { fork, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { UNRESTRICTED_POLICY } from '@coppice/contract';
import { HOSTCTL } from '../config/testing/hostctl.ts';
import { withDeadline } from '../lib/waiting/deadline.ts';
import { EgressMessage, type EgressStart, type RunnerMessage } from '../lib/protocol/egress-messages.ts';
import { buildEgress } from './testing/egress-site.ts';

const MAIN = fileURLToPath(new URL('../main.ts', import.meta.url));
const TIMEOUT_MS = 30_000;
/** User id that no account of the host has. */
const UID = 61_234;
const START: EgressStart = {
  type: 'start',
  resolver: '127.0.0.1',
  resolvers: ['127.0.0.1:9'],
  closed: { openPrivateRanges: [], own: [] },
};

class Runner implements AsyncDisposable {
  readonly child: ChildProcess;
  stderr = '';

  constructor() {
    const { stdin, stdout } = spawn(HOSTCTL, ['originals'], { stdio: ['pipe', 'pipe', 'inherit'] });
    this.child = fork(MAIN, ['egress', String(UID)], {
      stdio: ['ignore', 'inherit', 'pipe', 'ipc', stdin, stdout],
      env: { ...process.env, COPPICE_CONFIG: '/dev/null' },
    });
    stdin.destroy();
    stdout.destroy();
    this.child.stderr?.on('data', (chunk: Buffer) => (this.stderr += chunk.toString()));
  }

  tell(message: RunnerMessage): void {
    this.child.send(message);
  }

  async hear(): Promise<EgressMessage> {
    const [message] = (await withDeadline('message', TIMEOUT_MS, once(this.child, 'message'))) as [unknown];
    return EgressMessage.parse(message);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    this.child.kill('SIGKILL');
    await once(this.child, 'exit');
  }
}

function uidsOf(pid: number): string[] {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return /^Uid:\t(.*)$/mu.exec(status)?.[1]?.split('\t') ?? [];
}

test('the role reports its ports, never serves as root, and ends with its runner', async () => {
  await using runner = new Runner();
  runner.tell(START);
  const ready = await runner.hear();
  assert.ok(ready.type === 'ready');
  if (process.getuid?.() === 0)
    assert.deepEqual(new Set(uidsOf(runner.child.pid ?? 0)), new Set([String(UID)]));
  runner.tell({
    type: 'guest',
    id: 1,
    address: '127.0.0.9',
    vmId: 'vm',
    egress: buildEgress({ allow: ['a.test'] }),
  });
  assert.deepEqual(await runner.hear(), { type: 'done', id: 1 });
  runner.tell({ type: 'counters', id: 2, address: '127.0.0.9' });
  const counters = await runner.hear();
  assert.ok(counters.type === 'counters' && counters.counters?.connections_open === 0);
  const client = connect(ready.ports.proxy, '127.0.0.1');
  const [error] = (await withDeadline('reset', TIMEOUT_MS, once(client, 'error'))) as [NodeJS.ErrnoException];
  assert.equal(error.code, 'ECONNRESET');
  runner.child.kill('SIGTERM');
  const ended = once(runner.child, 'exit');
  runner.child.disconnect();
  assert.deepEqual(await withDeadline('end of the process', TIMEOUT_MS, ended), [0, null]);
});

test('a policy that cannot be parsed allows nothing, and its error contains no secret', async () => {
  await using runner = new Runner();
  runner.tell(START);
  await runner.hear();
  const network = { ...UNRESTRICTED_POLICY, allow: ['not a rule'] };
  const guest = { type: 'guest', address: '127.0.0.9', vmId: 'vm' } as const;
  runner.tell({ ...guest, id: 1, egress: buildEgress({}) });
  await runner.hear();
  runner.tell({ ...guest, id: 2, egress: { network, grants: [] } });
  const done = await runner.hear();
  assert.match(done.type === 'done' ? (done.error ?? '') : '', /not a rule/u);
  runner.tell({ type: 'counters', id: 3, address: '127.0.0.9' });
  assert.deepEqual(await runner.hear(), { type: 'counters', id: 3, counters: null });
});

test('an invalid message of the runner ends the process and is not printed', async () => {
  await using runner = new Runner();
  runner.tell(START);
  await runner.hear();
  const ended = once(runner.child, 'exit');
  runner.child.send({ type: 'guest', id: 1, address: 'nowhere', secret: 'canary-3117' });
  const [code] = (await withDeadline('end of the process', TIMEOUT_MS, ended)) as [number];
  assert.equal(code, 1);
  assert.match(runner.stderr, /no message \(address\)/u);
  assert.ok(!runner.stderr.includes('canary-3117'));
});
