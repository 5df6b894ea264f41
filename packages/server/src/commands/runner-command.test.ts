/** `coppice admin runner`, as operators run it on the machine of a control and on that of a runner. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { findJoinRecord } from '../runner/identity/join-record.ts';
import { prepareHarness, waitFor } from '../control/testing/control-harness.ts';
import { findFreePort } from '../control/testing/free-port.ts';
import { configure, coppice, serve } from '../control/testing/operator-commands.ts';
import { findPostgresBin } from '../control/testing/test-postgres.ts';

const HOST = '127.0.0.1';

interface Listed {
  id: string;
  state: string;
  address: string | null;
  owner: string | null;
  epoch: number;
  mem_mib: { limit: number } | null;
}

test('operators make a token, join a runner with it, list and revoke it, alongside the service', async () => {
  await using harness = await prepareHarness({}, 'own');
  await using machine = await prepareHarness();
  const change = configure(harness, await findPostgresBin());
  const internalListen = { host: HOST, port: await findFreePort() };
  const own = { COPPICE_INTERNAL_LISTEN: `${HOST}:${internalListen.port}` };
  const listen = { COPPICE_RUNNER_LISTEN: `${HOST}:${await findFreePort()}` };
  const run = (...args: string[]): Promise<string> => coppice(harness, change, ['runner', ...args], own);
  const onMachine = (settings: Record<string, string>, ...args: string[]): Promise<string> =>
    coppice(machine, { ...change, dataDir: '', runDir: '' }, ['runner', ...args], settings);
  const list = async (): Promise<Listed[]> => JSON.parse(await run('list', '--json')) as Listed[];
  await harness.runner.start();
  await serve(harness, { ...change, internalListen });

  const token = (await run('token', '--minutes', '5')).trim();
  assert.match(token, /^cjt_[\w-]{43}\.[0-9a-f]{64}$/u, 'alone on the standard output');
  const url = `https://${HOST}:${internalListen.port}`;
  await assert.rejects(onMachine({}, 'join', url, '--token', token), {
    code: 1,
    stderr:
      /^coppice admin runner: COPPICE_RUNNER_LISTEN is not set: set it to the address:port of this machine/u,
  });
  assert.match(
    await onMachine(listen, 'join', url, '--token', token),
    /^runner-\w+ has joined: .*Start the service/u,
  );
  const record = findJoinRecord(join(machine.directory, 'runner'));
  const id = record?.runner_id ?? '';
  const [local, joined] = await list();
  assert.deepEqual([local?.state, local?.address, local?.epoch], ['local', null, 1]);
  assert.deepEqual(
    [joined?.id, joined?.state, joined?.address],
    [id, 'joined', listen.COPPICE_RUNNER_LISTEN],
  );
  await waitFor('the report', async () => (await list())[0]?.mem_mib?.limit === 4096);
  assert.match(
    await run('list'),
    /^ID +STATE .*\nrunner-0{32} +local .* 2048 of 4096 MiB +\d s ago +10\.0\.0 +-\nrunner-\w+ +joined +127\.0\.0\.1:/u,
  );
  const controls = (...args: string[]): Promise<string> =>
    coppice(harness, change, ['control', 'list', ...args], own);
  assert.match(await controls(), /^ID +VERSION .*\nctl\w+ .* yes +\d /u);
  const [control] = JSON.parse(await controls('--json')) as { id: string; leading: boolean }[];
  assert.deepEqual([control?.id, control?.leading], [local?.owner, true]);
  await assert.rejects(coppice(harness, change, ['control'], own), { stderr: /expected list/u });
  await assert.rejects(onMachine(listen, 'join', url, '--token', token), {
    stderr: /to join anew, revoke it there/u,
  });

  assert.match(await run('cordon', id), /gets no new sandboxes/u);
  assert.equal((await list())[1]?.state, 'cordoned');
  assert.match(await run('drain', id, '--minutes', '1'), /has no VM any more/u);
  assert.match(await run('uncordon', id), /gets new sandboxes again/u);
  assert.equal((await list())[1]?.state, 'joined');
  await assert.rejects(run('drain', 'runner-0'), { stderr: /there is no runner "runner-0"/u });
  await assert.rejects(run('cordon'), { stderr: /name one runner/u });

  assert.match(await run('revoke', id), /is revoked for good/u);
  assert.equal((await list())[1]?.state, 'revoked');
  for (const [args, told] of [
    [['revoke', 'runner-0'], /there is no runner "runner-0"; coppice admin runner list shows them/u],
    [['revoke', local?.id ?? ''], /is that of a control's own machine/u],
    [['revoke'], /name one runner/u],
    [['token', '--runner', id], /is revoked for good/u],
    [['token', '--minutes', '0'], /--minutes: "0" is not a whole number from 1 to 10080/u],
    [['join', 'http://127.0.0.1:1', '--token', token], /is not the URL of a control, such as https:/u],
    [['join', url], /--token is missing/u],
    [['join', url, '--token', token.slice(0, -1)], /--token: is malformed or incomplete/u],
    [['join', url, '--token', token, '--address', 'x'], /--address: "x" is not host:port/u],
    [['other'], /expected join, token, list, cordon, uncordon, drain or revoke/u],
  ] as const)
    await assert.rejects(run(...args), { stderr: told }, args.join(' '));
});
