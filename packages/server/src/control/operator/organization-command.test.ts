/** `coppice admin organization`, as an operator runs it alongside the service. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { configure, coppice, serve } from '../testing/operator-commands.ts';
import { prepareHarness } from '../testing/control-harness.ts';
import { findPostgresBin, makeDatabase } from '../testing/test-postgres.ts';

interface Listed {
  id: string;
  name: string;
  sandboxes: number;
  cost_cents: number;
  credit_left_cents: number;
  limits: Record<string, number | null>;
}

test('an operator lists organizations, grants credit and sets limits, alongside the service and without it', async () => {
  await using harness = await prepareHarness({}, 'own');
  const change = configure(harness, await findPostgresBin());
  const settings = { COPPICE_CREDIT_USD: '50' };
  const run = (...args: string[]): Promise<string> =>
    coppice(harness, change, ['organization', ...args], settings);
  const list = async (): Promise<Listed[]> => JSON.parse(await run('list', '--json')) as Listed[];
  await harness.runner.start();
  await serve(harness, change);
  await harness.create({ timeout: 0 });
  const [first] = await list();
  assert.ok(first);
  assert.equal(first.sandboxes, 1);
  assert.ok(first.cost_cents > 0);

  assert.match(await run('grant', first.id, '12.50', '--note', 'invoice 17'), /is granted 12\.50 USD\.\n$/u);
  await run('grant', first.id, '-2.50');
  const [granted] = await list();
  assert.ok(granted);
  // The welcome credit, which the service grants when credit is on, and both grants. The cost before it is settled.
  assert.equal(Math.floor(granted.credit_left_cents), 6000);
  assert.equal((await harness.call('GET', '/v1/usage')).status, 200, 'the service continues');

  await run('limit', first.id, '--vcpus', '1', '--sandboxes', 'none', '--snapshot-bytes', '0');
  await run('limit', first.id, '--sandboxes', '7');
  const [limited] = await list();
  assert.deepEqual(
    Object.fromEntries(Object.entries(limited?.limits ?? {}).filter(([, value]) => value !== null)),
    { sandboxes: 7, vcpus: 1, snapshot_bytes: 0 },
  );
  assert.match(await run('list'), /^ID .*\norg\S+ .* sandboxes 7, vcpus 1, snapshot-bytes 0\n$/u);

  const withoutCredit = (...args: string[]): Promise<string> =>
    coppice(harness, change, ['organization', ...args]);
  assert.match(await withoutCredit('list'), /\norg\S+ .* off /u);
  assert.match(await withoutCredit('grant', first.id, '1'), /Credit has no consequences/u);
  await harness.stopControl();
  await run('limit', first.id, '--vcpus', 'default');
  assert.equal((await list())[0]?.limits['vcpus'], null);

  for (const [args, told] of [
    [['grant', 'orgnobody', '5'], /there is no organization "orgnobody"; coppice admin organization list/u],
    [['limit', 'orgnobody', '--vcpus', '5'], /there is no organization "orgnobody"/u],
  ] as const)
    await assert.rejects(run(...args), told);
});

test('where no service was ever started, the command fails and creates nothing', async () => {
  await using harness = await prepareHarness({}, 'own');
  const change = configure(harness, await findPostgresBin());
  await assert.rejects(
    coppice(harness, change, ['organization', 'list']),
    /there is no database in .*: no service has been started here/u,
  );
  const empty = { ...change, databaseUrl: await makeDatabase() };
  await assert.rejects(
    coppice(harness, empty, ['organization', 'list']),
    /the database is not up to date: start this version of the service once/u,
  );
});

test('a malformed command line is refused with the correct form, before any access to the database', async () => {
  await using harness = await prepareHarness({}, 'own');
  const change = configure(harness, await findPostgresBin());
  for (const [args, told] of [
    [[], /unknown command "": expected list, grant or limit/u],
    [['grant', 'org1'], /name an organization and an amount/u],
    [['grant', 'org1', '1.005'], /"1\.005" is not an amount in USD: write 50, 12\.50 or -5/u],
    [['grant', 'org1', '-'], /"-" is not an amount/u],
    [['grant', 'org1', '0'], /nothing would change/u],
    [['limit', 'org1'], /name a limit: --sandboxes, --vcpus/u],
    [['limit', '--vcpus', '5'], /name one organization/u],
    [['limit', 'org1', '--vcpus', '0'], /--vcpus: "0" is not a limit: write a number from 1, "none"/u],
    [['limit', 'org1', '--vcpus', '2147483648'], /is not a limit/u],
    [['limit', 'org1', '--snapshot-bytes', 'none'], /write a number from 0, or "default"/u],
    [['limit', 'org1', '--cpus', '5'], /Unknown option '--cpus'/u],
  ] as const)
    await assert.rejects(coppice(harness, change, ['organization', ...args]), told, args.join(' '));
});
