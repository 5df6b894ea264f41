/** `npm run check`: runs every check that needs no service and no VM. Needs npm packages and Go, but not root. */
import { runChecks } from './check/checks.mjs';
import { runMain } from './setup/entry.mjs';
import { setUpNpmPackages } from './setup/setup.mjs';

await runMain(async () => {
  await setUpNpmPackages();
  const { failed } = await runChecks();
  return failed === 0 ? 0 : 1;
});
