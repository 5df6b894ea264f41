/** Commands that outlive their client, through the client library: what they survive, and what becomes of their output. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { Coppice, type Command, type CommandOutput, type Sandbox } from '../../packages/sdk/src/index.ts';
import { findFreePort } from '../../packages/server/src/control/testing/free-port.ts';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import { Api } from '../fixtures/api/api.ts';
import { SMALL } from '../fixtures/api/client.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import { API_KEY, type Service } from '../fixtures/service/service.ts';

const TIMEOUT_MS = 60_000;
const MIB = 1 << 20;
/** Output that the guest keeps of a command, as docs/guides/commands.md says. */
const KEPT_BYTES = 64 * MIB;
const FLOOD_BYTES = 100 * MIB;
/** A mark is freed at a time, and the bytes of frames are counted, too. */
const KEPT_TOLERANCE_BYTES = 2 * MIB;
const LINES = 200;
/** Prints a number every 50 ms. */
const COUNT = `i=0; while [ $i -lt ${LINES} ]; do i=$((i+1)); echo $i; sleep 0.05; done; exit 7`;

describe('commands that outlive their client', () => {
  let service: Service;
  let client: Coppice;
  let sandbox: Sandbox;
  before(async () => {
    // The client finds it again after a restart.
    const env = { COPPICE_LISTEN: `127.0.0.1:${await findFreePort()}` };
    service = await startPrepared({ instance: 8, env });
    client = new Coppice({ baseUrl: service.address, apiKey: API_KEY });
    sandbox = await client.sandboxes.create({ ...SMALL, timeout: 0 });
  });
  after(() => service[Symbol.asyncDispose]());

  const guestMemoryMiB = async (): Promise<number> =>
    Number((await sandbox.exec("awk '/MemAvailable/ {print int($2/1024)}' /proc/meminfo")).stdout);
  const usedMiB = async (): Promise<number> =>
    Number((await sandbox.exec("df -m / | awk 'END {print $3}'")).stdout);

  /** Reads all output, and calls `onLine` with the number of lines so far. */
  async function readNumbers(
    command: Command,
    onLine: (count: number) => Promise<void> | void = () => undefined,
  ) {
    let text = '';
    let called = 0;
    const output = command.output();
    for (;;) {
      const { value, done } = await output.next();
      if (done === true) return { numbers: text.trim().split('\n').map(Number), exit: value };
      assert.ok(value.type === 'stdout');
      text += value.data;
      const count = text.split('\n').length - 1;
      if (count > called) await onLine(count);
      called = count;
    }
  }

  /** Calls `act` once, after some lines. */
  function onceAfter(lines: number, act: () => Promise<void>): (count: number) => void {
    let acting: Promise<void> | undefined;
    return (count) => {
      if (count >= lines) acting ??= act();
    };
  }

  const assertCounted = (numbers: readonly number[]): void =>
    assert.deepEqual(
      numbers,
      Array.from({ length: LINES }, (_, index) => index + 1),
    );

  test('a start answers at once, and the command continues without any connection', async () => {
    const { id } = await sandbox.commands.start('sleep 1; echo done; echo bad >&2; exit 5', { tag: 'a job' });
    await delay(1500);
    const command = await sandbox.commands.get(id);
    assert.ok(command !== null);
    const { exitCode, state, tag, outputBytes } = await command.wait();
    assert.deepEqual([exitCode, state, tag, outputBytes], [5, 'exited', 'a job', 9]);
    const parts: CommandOutput[] = [];
    for await (const part of command.output()) parts.push(part);
    // The guest reads two pipes: the order between the streams is that in which it has read them.
    assert.deepEqual(
      parts.map((part) => `${part.type} ${part.type === 'dropped' ? '' : part.data}`).toSorted(),
      ['stderr bad\n', 'stdout done\n'],
    );
    const entries = await Array.fromAsync(sandbox.audit());
    const start = entries.find(
      ({ event, data }) => event === 'exec.start' && String(data['command']).includes('bad >&2'),
    );
    const exit = entries.find(({ event, data }) => event === 'exec.exit' && data['exit_code'] === 5);
    assert.ok(start !== undefined && exit !== undefined && exit.seq > start.seq);
  });

  for (const role of ['control', 'runner'] as const)
    test(`${role} is killed while a client reads: no output is lost or repeated`, async () => {
      const command = await sandbox.commands.start(COUNT);
      const kill = onceAfter(20, () => service.killRole(role));
      const { numbers, exit } = await readNumbers(command, kill);
      assertCounted(numbers);
      assert.equal(exit.exitCode, 7);
      const record = await pollUntil(
        { step: 'the record', timeoutMs: TIMEOUT_MS, intervalMs: 200 },
        async () => {
          const info = await command.info().catch(() => undefined);
          return info?.state === 'exited' ? info : undefined;
        },
      );
      assert.equal(record.exitCode, 7);
    });

  test('the whole service stops, and a command that ends meanwhile is recorded after the next start', async () => {
    const command = await sandbox.commands.start('echo begun; sleep 3; exit 9');
    await service.stop();
    await delay(4000);
    await service.launch();
    await service.waitFor('/healthz', TIMEOUT_MS, async () => (await service.health()) === 200);
    const info = await command.wait();
    assert.deepEqual([info.state, info.exitCode], ['exited', 9]);
  });

  test('it runs on after a hibernation, with its input still open', async () => {
    const command = await sandbox.commands.start('read line; echo "got $line"; read line; echo "and $line"', {
      stdin: true,
    });
    await command.write('one\n');
    await sandbox.hibernate();
    assert.equal((await command.info()).state, 'running');
    await sandbox.resume();
    await command.write('two\n', { end: true });
    const { exitCode } = await command.wait();
    assert.equal(exitCode, 0);
    const output = [];
    for await (const part of command.output()) if (part.type !== 'dropped') output.push(part.data);
    assert.equal(output.join(''), 'got one\nand two\n');
  });

  test('each child of a fork has it under an id of its own, and they end apart', async () => {
    const command = await sandbox.commands.start('echo shared; read line; echo "$line"; exit 3', {
      stdin: true,
      tag: 'forked',
    });
    const [child] = await sandbox.fork();
    try {
      const copy = await pollUntil({ step: 'the copy', timeoutMs: TIMEOUT_MS, intervalMs: 100 }, async () => {
        const [found] = await child.commands.list({ tag: 'forked' });
        return found;
      });
      assert.notEqual(copy.id, command.id);
      await copy.write('child\n');
      const ended = await copy.wait();
      assert.deepEqual([ended.exitCode, ended.state], [3, 'exited']);
      let text = '';
      for await (const part of copy.output()) if (part.type !== 'dropped') text += part.data;
      assert.equal(text, 'shared\nchild\n');
      assert.equal((await command.info()).state, 'running');
      assert.equal(await child.commands.get(command.id), null);
    } finally {
      await child.destroy();
      await command.signal('KILL');
    }
    assert.equal((await command.wait()).exitCode, 137);
  });

  test('a rollback loses a newer command, and brings back one that had ended', async () => {
    const old = await sandbox.commands.start('read line; exit 4', { stdin: true });
    const snapshot = await sandbox.snapshot();
    try {
      await old.write('x\n');
      assert.equal((await old.wait()).exitCode, 4);
      const young = await sandbox.commands.start('sleep 600');
      await sandbox.rollback(snapshot.id);
      await pollUntil({ step: 'the states', timeoutMs: TIMEOUT_MS, intervalMs: 100 }, async () => {
        const states = [(await old.info()).state, (await young.info()).state];
        return states.join() === 'running,lost' ? true : undefined;
      });
      await old.write('y\n');
      assert.equal((await old.wait()).exitCode, 4);
    } finally {
      await client.snapshots.delete(snapshot.id);
    }
  });

  test('at full speed it fills neither memory nor disk, and the dropped output is counted', async () => {
    const [memory, disk] = [await guestMemoryMiB(), await usedMiB()];
    const command = await sandbox.commands.start(`yes 0123456789abcde | head -c ${FLOOD_BYTES}`);
    const { exitCode, outputBytes, droppedBytes } = await command.wait();
    assert.deepEqual([exitCode, outputBytes], [0, FLOOD_BYTES]);
    const kept = outputBytes - droppedBytes;
    assert.ok(Math.abs(kept - KEPT_BYTES) < KEPT_TOLERANCE_BYTES, `${kept} bytes are kept`);
    assert.ok((await usedMiB()) - disk < 70, 'the disk grew by no more than what is kept');
    assert.ok(memory - (await guestMemoryMiB()) < 24, 'the guest has nearly as much memory as before');
    let [read, dropped, next] = [0, 0, 0];
    for await (const part of command.output()) {
      if (part.type === 'dropped') dropped += part.bytes;
      else {
        assert.equal(part.nextOffset - next, part.data.length);
        read += part.data.length;
      }
      next = part.nextOffset;
    }
    assert.deepEqual([read, dropped, next], [kept, droppedBytes, FLOOD_BYTES]);
  });

  test('a reader that leaves in the middle does not disturb it, and a page continues where another ended', async () => {
    const command = await sandbox.commands.start(`head -c 3000000 /dev/zero | tr '\\0' x`);
    for await (const part of command.output()) if (part.nextOffset > 100_000) break;
    await command.wait();
    const path = `/v1/runs/${sandbox.id}/commands/${command.id}/output`;
    let [offset, bytes, isLast] = [0, 0, false];
    while (!isLast) {
      const { status, body } = await new Api(service).call('GET', `${path}?offset=${offset}&limit=1000000`);
      assert.equal(status, 200);
      bytes += (body['output'] as { data: string }[]).reduce((sum, { data }) => sum + data.length, 0);
      [offset, isLast] = [Number(body['next_offset']), body['is_last'] === true];
    }
    assert.deepEqual([offset, bytes], [3_000_000, 3_000_000]);
  });

  test('a time limit and a signal end it with all its processes', async () => {
    const limited = await sandbox.commands.start('sleep 7001 & sleep 7002', { timeout: 1 });
    const { exitCode, timedOut } = await limited.wait();
    assert.deepEqual([exitCode, timedOut], [124, true]);
    const signalled = await sandbox.commands.start('sleep 7003 & sleep 7004; true');
    await signalled.signal('TERM');
    assert.equal((await signalled.wait()).exitCode, 143);
    await pollUntil({ step: 'the processes to end', timeoutMs: TIMEOUT_MS, intervalMs: 100 }, async () =>
      (await sandbox.exec("pgrep -f '^sleep 700'")).exitCode === 1 ? true : undefined,
    );
    await assert.rejects(signalled.signal('TERM'), { status: 409, code: 'invalid_state' });
  });

  test('more commands than a sandbox may run at once are refused, and those that run stay', async () => {
    const running: Command[] = [];
    const refused = await (async () => {
      for (let count = 0; count < 140; count += 1) {
        const started = await sandbox.commands
          .start('exec sleep 600')
          .catch((error: unknown) => error as Error);
        if (started instanceof Error) return started;
        running.push(started);
      }
      return undefined;
    })();
    assert.match(String(refused), /128/u);
    assert.equal(running.length, 128);
    await Promise.all(running.map((command) => command.signal('KILL')));
    for (const command of running) assert.equal((await command.wait()).exitCode, 137);
  });

  test('the end of the sandbox loses it, and it is still listed', async () => {
    const other = await client.sandboxes.create({ ...SMALL, timeout: 0 });
    const command = await other.commands.start('sleep 600');
    const waiting = command.wait();
    await other.destroy();
    assert.equal((await waiting).state, 'lost');
    assert.deepEqual(
      (await other.commands.list()).map(({ id, state }) => [id, state]),
      [[command.id, 'lost']],
    );
    await assert.rejects(command.signal('TERM'), { status: 409 });
  });
});
