/** The examples of the client that act in a guest run on virtual machines, too. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findExamples } from '../../packages/sdk/tests/examples/find-examples.ts';
import { Programs } from '../../packages/sdk/tests/examples/programs.ts';
import { API_KEY } from '../fixtures/service/service.ts';
import { shared } from '../fixtures/service/shared.ts';

const USES_GUEST =
  /\.(?:exec|stream|spawn|shell|terminal|run|write|upload\w*|download\w*|listFiles|files|commands|fork)\b/u;
/**
 * They need a disk, an account or a build, with tests in e2e/disks, e2e/accounts and e2e/images, no service at all, or
 * more memory and processors than a small machine has (forks: sdk-forks.test.ts).
 */
const ELSEWHERE = /'data'|registries|networkProfiles|setCredentials|MockService|\bbuilds\.|fork\(50\)/u;

test('every example that acts in a guest runs in one', async () => {
  const examples = findExamples().filter(({ code }) => USES_GUEST.test(code) && !ELSEWHERE.test(code));
  assert.ok(examples.length >= 40, `${examples.length} examples`);
  const { service } = await shared();
  await using programs = await Programs.write(examples);
  const results = await programs.run({
    baseUrl: service.address,
    apiKey: API_KEY,
    image: 'coppice/base:1',
    sharesSandbox: true,
  });
  assert.equal(results.length, examples.length);
  const failed = results.filter(({ error }) => error !== undefined);
  assert.deepEqual(
    failed.map(({ place, error }) => `${place}: ${error}`),
    [],
  );
});
