import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LoopbackServer, sendJson, wireRecord } from '../../../sdk/src/testing/loopback-server.ts';
import { findSandbox } from './find-sandbox.ts';

const ids = ['run01aaaaaaaaaaaaaaaaaa', 'run01bbbbbbbbbbbbbbbbbb', 'run02cccccccccccccccccc'];
const names = ['build', 'run02', 'shared', 'shared'];

/** Lists sandboxes: one of each id, or those with the name. */
function startService(): Promise<LoopbackServer> {
  return LoopbackServer.start(({ url }, response) => {
    const name = new URL(url, 'http://service').searchParams.get('name');
    const records = [...ids, `run03${'d'.repeat(18)}`].map((id, index) =>
      wireRecord({ id, name: names[index] }),
    );
    sendJson(response, { body: records.filter((record) => name === null || record['name'] === name) });
  });
}

test('a sandbox is found by its name, or by the beginning of its id; the name precedes', async () => {
  await using server = await startService();
  const find = async (given: string): Promise<string> => (await findSandbox(server.client(), given)).id;
  assert.equal(await find('build'), ids[0]);
  assert.equal(await find('run01a'), ids[0]);
  assert.equal(await find('01b'), ids[1]);
  assert.equal(await find('run02'), ids[1]);
  assert.equal(await find('run02c'), ids[2]);
});

test('a word that names no sandbox, or several, is an error with the remedy', async () => {
  await using server = await startService();
  const find = (given: string) => findSandbox(server.client(), given);
  await assert.rejects(
    find('run01'),
    /"run01" is the beginning of several ids, run01a+, run01b+: give more of the id/u,
  );
  await assert.rejects(
    find('shared'),
    /"shared" is the name of sandboxes of several teams, run02c+, run03d+:/u,
  );
  await assert.rejects(find('no such'), /no sandbox has the name "no such" .*"coppice ls" lists/u);
  for (const given of ['', 'run']) await assert.rejects(find(given), /the sandbox is empty/u);
});

test('a search ends when its signal is aborted', async () => {
  await using server = await startService();
  const reason = new Error('no longer wanted');
  await assert.rejects(findSandbox(server.client(), 'build', { signal: AbortSignal.abort(reason) }), reason);
});
