/** The client of S3 in the built service: loaded only where it is used, and then complete. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { buildProgram } from '../../../../build-program.mjs';
import { BUCKET, ObjectServer } from '../testing/object-server.ts';

const MAIN = fileURLToPath(new URL('../../../main.ts', import.meta.url));
const RUN_TIMEOUT_MS = 30_000;
/** Removes the files that were not loaded, as control's account may be unable to read them. */
const PROGRAM = `
import { rmSync } from 'node:fs';
const [directory, location] = process.argv.slice(1);
const { S3Objects } = await import(directory + '/s3-objects.mjs');
rmSync(directory, { recursive: true });
const objects = S3Objects.open(JSON.parse(location));
console.log(await objects.putIfAbsent('built', ['x']), await objects.putIfAbsent('built', ['y']));
objects[Symbol.dispose]();`;

let directory: string;
before(async () => {
  directory = mkdtempSync(join(tmpdir(), 'cop-build-'));
  await buildProgram(MAIN, directory);
});
after(() => rmSync(directory, { recursive: true, force: true }));

test('only the code of the S3 store loads the client', () => {
  const files = readdirSync(directory).filter((name) => name.endsWith('.mjs'));
  const importers = files.filter((name) =>
    /^(?:import|export) [^\n]*"\.\/s3-(?:client|objects)\.mjs"/mu.test(
      readFileSync(join(directory, name), 'utf8'),
    ),
  );
  assert.ok(importers.includes('s3-objects.mjs'));
  assert.ok(!importers.some((name) => /role|main|egress|supervisor/u.test(name)), importers.join());
  const others = files.filter((name) => name !== 's3-client.mjs');
  for (const name of others)
    assert.ok(!readFileSync(join(directory, name), 'utf8').includes('fromTokenFile'), name);
});

test('once loaded, it finds credentials in a file and writes without further files of the build', async () => {
  await using server = await ObjectServer.start();
  const { AWS_ACCESS_KEY_ID: id, AWS_SECRET_ACCESS_KEY: secret, ...environment } = process.env;
  const credentials = server.writeCredentials(`${id}`, `${secret}`);
  const location = JSON.stringify(server.locate({ bucket: BUCKET }));
  const output = execFileSync(
    process.execPath,
    ['--input-type=module', '--eval', PROGRAM, directory, location],
    {
      encoding: 'utf8',
      timeout: RUN_TIMEOUT_MS,
      env: { ...environment, AWS_SHARED_CREDENTIALS_FILE: credentials },
    },
  );
  assert.equal(output, 'true false\n');
});
