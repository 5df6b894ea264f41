/** The Python client on a real service: its own tests, a lost connection, and Ctrl-C. */
import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { text } from 'node:stream/consumers';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { after, before, describe, test } from 'node:test';
import { Coppice } from '../../packages/sdk/src/index.ts';
import { findFreePort } from '../../packages/server/src/control/testing/free-port.ts';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import { readTeamSecret } from '../fixtures/accounts/team-secret.ts';
import { SMALL } from '../fixtures/api/client.ts';
import { getPython, PYTHON_CLIENT, PYTHON_SOURCES } from '../fixtures/api/python-client.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import { API_KEY, type Service } from '../fixtures/service/service.ts';

const PYTEST_TIMEOUT_MS = 8 * 60_000;
const TIMEOUT_MS = 90_000;
const LINES = 200;

/** Reads the output of a command that prints a number every 50 ms, and prints each piece. */
const READER = `
from coppice import Coppice

count = "i=0; while [ $i -lt ${LINES} ]; do i=$((i+1)); echo $i; sleep 0.05; done; exit 7"
with Coppice() as client, client.sandboxes.create(image="${SMALL.image}", mem_mib=${SMALL.memMiB}, timeout=0) as sandbox:
    command = sandbox.commands.start(count)
    reader = command.output()
    for piece in reader:
        assert piece.type == "stdout", piece
        print(piece.data, end="", flush=True)
    assert reader.exit is not None and reader.exit.exit_code == 7, reader.exit
    assert command.wait().exit_code == 7
`;
/** Has a spawned command and a shell when the connections are lost, and then opens new ones. */
const SESSIONS = `
from coppice import Coppice, CoppiceError

with Coppice(max_retries=8) as client, client.sandboxes.create(image="${SMALL.image}", mem_mib=${SMALL.memMiB}, timeout=0) as sandbox:
    with sandbox.spawn("echo ready; exec sleep 7201", timeout=600) as command, sandbox.shell() as shell:
        assert next(iter(command)).data == "ready\\n"
        shell.run("cd /tmp")
        print("open", flush=True)
        for wait in (command.wait, shell.wait_closed):
            try:
                wait()
            except CoppiceError as error:
                print(error.code, flush=True)
    # Repeated until control answers again. A spawn is not, if a socket of the killed process accepted it.
    client.sandboxes.get(sandbox.id)
    with sandbox.spawn("cat") as command:
        command.stdin.write("again")
        command.stdin.end()
        print(next(iter(command)).data, command.wait().exit_code, flush=True)
    while sandbox.exec("pgrep -f '^sleep 7201'").exit_code == 0:
        pass
    with sandbox.shell() as shell:
        print(shell.run("echo in $PWD").stdout, end="", flush=True)
`;
const INTERRUPTED = {
  'that waits for a spawned command': `
from coppice import Coppice

with Coppice() as client, client.sandboxes.create(image="${SMALL.image}", mem_mib=${SMALL.memMiB}, timeout=0) as sandbox:
    command = sandbox.spawn("sleep 600", timeout=600)
    print("created", flush=True)
    command.wait()
`,
  'that blocks': `
from coppice import Coppice

with Coppice() as client, client.sandboxes.create(image="${SMALL.image}", mem_mib=${SMALL.memMiB}, timeout=0) as sandbox:
    print("created", flush=True)
    sandbox.exec("sleep 600", timeout=600)
`,
  'for asyncio': `
import asyncio
from coppice import AsyncCoppice

async def main():
    async with AsyncCoppice() as client:
        create = client.sandboxes.create(image="${SMALL.image}", mem_mib=${SMALL.memMiB}, timeout=0)
        async with await create as sandbox:
            print("created", flush=True)
            await sandbox.exec("sleep 600", timeout=600)

asyncio.run(main())
`,
};

describe('the Python client', () => {
  let service: Service;
  let client: Coppice;
  before(async () => {
    // The client finds it again after a restart.
    const env = { COPPICE_LISTEN: `127.0.0.1:${await findFreePort()}` };
    service = await startPrepared({ instance: 6, env });
    client = new Coppice({ baseUrl: service.address, apiKey: API_KEY });
  });
  after(() => service[Symbol.asyncDispose]());

  /** Starts Python with the client and the address and key of the service. */
  function start(args: readonly string[], env: NodeJS.ProcessEnv = {}): ChildProcess {
    return spawn(getPython(), args, {
      cwd: PYTHON_CLIENT,
      stdio: ['ignore', 'pipe', 'pipe'],
      env: {
        ...process.env,
        PYTHONPATH: PYTHON_SOURCES,
        PYTHONDONTWRITEBYTECODE: '1',
        SANDBOX_API_KEY: API_KEY,
        SANDBOX_BASE_URL: service.address,
        ...env,
      },
    });
  }

  async function waitForExit(child: ChildProcess, timeoutMs: number): Promise<number | null> {
    try {
      await once(child, 'exit', { signal: AbortSignal.timeout(timeoutMs) });
    } finally {
      child.kill('SIGKILL');
    }
    return child.exitCode;
  }

  const assertNoSandbox = async (): Promise<void> =>
    assert.deepEqual(
      (await client.sandboxes.list()).map(({ id, status }) => [id, status]),
      [],
    );

  test('passes its tests', { timeout: PYTEST_TIMEOUT_MS + TIMEOUT_MS }, async () => {
    const sandbox = await client.sandboxes.create(SMALL);
    const secret = readTeamSecret(service, String(sandbox.record.auditKeyId));
    await sandbox.destroy();
    const pytest = start(['-m', 'pytest', '-v', '--tb=short', 'service_tests'], {
      COPPICE_TEST_AUDIT_SECRET: secret,
    });
    const output = Promise.all([text(pytest.stdout!), text(pytest.stderr!)]);
    const exitCode = await waitForExit(pytest, PYTEST_TIMEOUT_MS);
    assert.equal(exitCode, 0, (await output).join('\n').replace(/^.* PASSED .*\n/gmu, ''));
    assert.match((await output)[0], /\n=+ \d+ passed in [^,]*$/u, 'no test was skipped');
    await assertNoSandbox();
  });

  test('reads on after control was killed: no output is lost or repeated', async () => {
    const reader = start(['-c', READER]);
    const errors = text(reader.stderr!);
    const numbers: number[] = [];
    let killing: Promise<void> | undefined;
    createInterface(reader.stdout!).on('line', (line) => {
      numbers.push(Number(line));
      if (numbers.length >= 20) killing ??= service.killRole('control');
    });
    const exitCode = await waitForExit(reader, TIMEOUT_MS);
    assert.equal(exitCode, 0, await errors);
    assert.ok(killing !== undefined, 'control was killed');
    await killing;
    assert.deepEqual(
      numbers,
      Array.from({ length: LINES }, (_, index) => index + 1),
    );
    await assertNoSandbox();
  });

  test('reports lost connections of commands and shells when control was killed, and opens new ones', async () => {
    const script = start(['-c', SESSIONS]);
    const errors = text(script.stderr!);
    const lines: string[] = [];
    let killing: Promise<void> | undefined;
    createInterface(script.stdout!).on('line', (line) => {
      lines.push(line);
      if (line === 'open') killing = service.killRole('control');
    });
    const exitCode = await waitForExit(script, TIMEOUT_MS);
    assert.equal(exitCode, 0, await errors);
    assert.ok(killing !== undefined, 'control was killed');
    await killing;
    const lost = 'connection_failed';
    assert.deepEqual(lines, ['open', lost, lost, 'again 0', 'in /workspace']);
    await assertNoSandbox();
  });

  for (const [kind, program] of Object.entries(INTERRUPTED)) {
    test(`destroys the sandbox of a script ${kind} on Ctrl-C`, async () => {
      const script = start(['-c', program]);
      const errors = text(script.stderr!);
      const created = createInterface(script.stdout!)[Symbol.asyncIterator]().next();
      assert.equal((await created).value, 'created', 'the script printed something else');
      script.kill('SIGINT');
      await waitForExit(script, TIMEOUT_MS);
      assert.match(await errors, /KeyboardInterrupt/u);
      await assertNoSandbox();
    });

    test(`destroys the sandbox that a script ${kind} is creating on Ctrl-C`, async () => {
      // A unique shape: its template is built first, which leaves time for the signal.
      const memMiB = 272 + 32 * Object.keys(INTERRUPTED).indexOf(kind);
      const script = start(['-c', program.replace(`mem_mib=${SMALL.memMiB}`, `mem_mib=${memMiB}`)]);
      const output = Promise.all([text(script.stdout!), text(script.stderr!)]);
      await pollUntil({ step: 'the record', timeoutMs: TIMEOUT_MS, intervalMs: 50 }, async () =>
        (await client.sandboxes.list()).length === 1 ? true : undefined,
      );
      script.kill('SIGINT');
      await waitForExit(script, TIMEOUT_MS);
      const [printed, errors] = await output;
      assert.equal(printed, '');
      assert.match(errors, /KeyboardInterrupt/u);
      await assertNoSandbox();
    });
  }
});
