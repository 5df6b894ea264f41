/** The examples of the client that act in a guest run on virtual machines, too. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findExamples } from '../../packages/sdk/tests/examples/find-examples.ts';
import { Programs } from '../../packages/sdk/tests/examples/programs.ts';
import { API_KEY } from '../fixtures/service/service.ts';
import { shared } from '../fixtures/service/shared.ts';

/** Sources about commands, shells, terminals, files, forks and snapshots, and all pages. */
const ABOUT_GUESTS =
  /^packages\/sdk\/src\/(?:commands|streams|sandbox\/(?:sandbox-guest|sandbox-life|sandbox-files))|\.md:/u;
/** They need a disk, an account or a link with its own test: e2e/disks, e2e/accounts, e2e/egress. */
const ELSEWHERE = /'data'|registries|networkProfiles|setCredentials/u;

test('every example that acts in a guest runs in one', async () => {
  const examples = findExamples().filter(
    ({ place, code }) => ABOUT_GUESTS.test(place) && !ELSEWHERE.test(code),
  );
  assert.ok(examples.length >= 60, `${examples.length} examples`);
  const { service } = await shared();
  await using programs = await Programs.write(examples);
  const results = await programs.run({
    baseUrl: service.address,
    apiKey: API_KEY,
    image: 'coppice/base:1',
  });
  assert.equal(results.length, examples.length);
  const failed = results.filter(({ error }) => error !== undefined);
  assert.deepEqual(
    failed.map(({ place, error }) => `${place}: ${error}`),
    [],
  );
});
