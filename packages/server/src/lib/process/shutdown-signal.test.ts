import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';

/** A role that reports ready, then the reason of its shutdown, and exits half a second later. */
const ROLE = `
  import { shutdownRequested } from ${JSON.stringify(import.meta.resolve('./shutdown-signal.ts'))};
  const asked = shutdownRequested();
  process.send('ready');
  const reason = await asked;
  setTimeout(() => { process.send(reason); process.disconnect(); }, 500);
`;

async function startRole() {
  const role = spawn(process.execPath, ['--input-type=module', '--eval', ROLE], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  await once(role, 'message');
  return role;
}

test('a signal that arrives twice at once counts once: the role shuts down gracefully', async () => {
  const role = await startRole();
  const exited = once(role, 'exit');
  const told = once(role, 'message');
  role.kill('SIGTERM');
  setTimeout(() => role.kill('SIGTERM'), 100);
  assert.deepEqual((await told)[0], 'SIGTERM');
  assert.deepEqual(await exited, [0, null]);
});

test("a role ignores a terminal's Ctrl-C, which the supervisor handles", async () => {
  const role = await startRole();
  const told = once(role, 'message');
  role.kill('SIGINT');
  setTimeout(() => role.kill('SIGTERM'), 200);
  assert.deepEqual((await told)[0], 'SIGTERM');
  await once(role, 'exit');
});
